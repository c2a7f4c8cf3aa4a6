"""Which benchmarks are there, and who runs them?"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from msgspec import Struct


class Entry(Struct, frozen=True):
    """`main` is `module:function`: it gets the arguments after the name and gives the exit status. Imported when it is run."""

    about: str
    main: str


BENCHES: Final[dict[str, Entry]] = {
    "crash": Entry("Kill the runtime at random moments; does it lose or repeat anything?", "luftpause_bench.crash.command:main"),
    "decide_cost": Entry("What an event costs the scheduler's core.", "luftpause_bench.decide_cost:main"),
    "flood": Entry("How policies fare on saturated engines, in virtual time.", "luftpause_bench.flood.main:flood"),
    "proxy_cost": Entry("What the proxy costs per turn and chunk, beside nginx and LLM routers.", "luftpause_bench.proxy_cost.run:main"),
    "sim": Entry("Live through simulated worlds in which everything fails.", "luftpause_bench.sim.command:main"),
}


def run(name: str, arguments: Sequence[str]) -> int:
    """Exit status: 2 where there is no such benchmark; else its own."""
    entry = BENCHES.get(name)
    if entry is None:
        print(f"there is no benchmark {name!r}; there are: {', '.join(sorted(BENCHES))}", file=sys.stderr)
        return 2
    module, _, function = entry.main.partition(":")
    main: Callable[[Sequence[str]], int | None] = getattr(import_module(module), function)
    return main(arguments) or 0


def listed() -> str:
    width = max(map(len, BENCHES))
    return "\n".join(f"  {name:{width}}  {entry.about}" for name, entry in sorted(BENCHES.items()))
