"""Which benchmarks are there, and who runs them?"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError


class Entry(Struct, frozen=True):
    """`main` is `module:function`: it gets the arguments after the name (before them the name, if `named`) and gives the exit status."""

    about: str
    main: str
    named: bool = False


FLOODS: Final = "luftpause_bench.flood.main:main"

BENCHES: Final[dict[str, Entry]] = {
    "compare": Entry("Any of these in several revisions: REV… -- NAME [options].", "luftpause_bench.compare.main:main"),
    "crash": Entry("Kill the runtime at random moments; does it lose or repeat anything?", "luftpause_bench.crash.command:main"),
    "decide": Entry("What a classification costs through the dataplane, alone and beside busy agents.", "luftpause_bench.decide:main"),
    "decide_cost": Entry("What an event costs the scheduler's core.", "luftpause_bench.decide_cost:main"),
    "fanout": Entry("Sub-agents all at once, one after the other, and through a router alone.", "luftpause_bench.fanout:main"),
    "flood": Entry("How policies fare on saturated engines: KV memory by batch agents.", FLOODS, named=True),
    "flood_bursts": Entry("Runs that come all at once.", FLOODS, named=True),
    "flood_coding": Entry("Coding agents with contexts of up to 120,000 tokens.", FLOODS, named=True),
    "flood_forks": Entry("Sub-agents that begin with their parent's whole context.", FLOODS, named=True),
    "flood_ghosts": Entry("Agents that die in a tool call without a word.", FLOODS, named=True),
    "flood_heavy": Entry("A caller with many runs beside others with few.", FLOODS, named=True),
    "flood_http": Entry("The flood over HTTP, with real routers, as real processes.", "luftpause_bench.flood_http.run:main"),
    "flood_lies": Entry("Engines that tell wrongly, late or not at all what they hold.", FLOODS, named=True),
    "flood_light": Entry("Engines that don't queue.", FLOODS, named=True),
    "flood_open": Entry("Runs that come at random, whatever became of those before.", FLOODS, named=True),
    "flood_router": Entry("A router before the engines is the only replica.", FLOODS, named=True),
    "flood_sets": Entry("40 random sets of engines and agents.", FLOODS, named=True),
    "flood_tools": Entry("Tools of 0.1, 2 and 25 s.", FLOODS, named=True),
    "llama_guard": Entry("What a real llama.cpp finds in its slots: direct, original and guard.", "luftpause_bench.llama_guard:main"),
    "proxy_cost": Entry("What the proxy costs per turn and chunk, beside nginx and LLM routers.", "luftpause_bench.proxy_cost.run:main"),
    "quota": Entry("Clients that share a rate-limited API: on their own, and through the governor.", "luftpause_bench.quota.main:main"),
    "quota_cost": Entry("What a call that asks first costs the governor's core.", "luftpause_bench.quota_cost:main"),
    "quota_http": Entry(
        "The same over HTTP, with real processes; also several nodes on one Redis.", "luftpause_bench.quota.main:main_http"
    ),
    "quota_latency": Entry("How much later a call is that asks the governor first, over HTTP.", "luftpause_bench.quota_latency:main"),
    "routing": Entry("How much of the prompts is found in caches, beside a cache-aware router.", "luftpause_bench.routing:main"),
    "scale": Entry("A thousand sub-agents, thousands of held turns, and memory over time.", "luftpause_bench.scale.main:main"),
    "sim": Entry("Live through simulated worlds in which everything fails.", "luftpause_bench.sim.command:main"),
    "spawn_flood": Entry("Sub-agents over MCP on saturated engines, beside a router alone.", "luftpause_bench.spawn_flood:main"),
}


def run(name: str, arguments: Sequence[str]) -> int:
    """Exit status: 2 where there is no such benchmark, or where it can't be run; else its own."""
    entry = BENCHES.get(name)
    if entry is None:
        print(f"there is no benchmark {name!r}; there are: {', '.join(sorted(BENCHES))}", file=sys.stderr)
        return 2
    module, _, function = entry.main.partition(":")
    main: Callable[..., int | None] = getattr(import_module(module), function)
    try:
        return (main(name, arguments) if entry.named else main(arguments)) or 0
    except LuftpauseError as error:
        print(f"luftpause bench {name}: {error.message}", file=sys.stderr)
        return 2


def listed() -> str:
    width = max(map(len, BENCHES))
    return "\n".join(f"  {name:{width}}  {entry.about}" for name, entry in sorted(BENCHES.items()))
