"""What becomes of a quota that nine agents share, and of those who can't wait?

Real client packages, each as it comes or as its documentation shows, against the fake provider; the same agents through the governor. Time
is virtual: clients, provider and governor run unchanged, only their clock jumps to what is due next. `--real` plays the
incident over HTTP with real processes instead: five minutes for each policy.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from msgspec import to_builtins
from rich.console import Console
from rich.progress import track

from luftpause_bench.quota.bounds import Found, judge
from luftpause_bench.quota.cells import Kept, play_all
from luftpause_bench.quota.clients import CLIENTS, litellm_package
from luftpause_bench.quota.governed import config
from luftpause_bench.quota.over_http import NODES, main_real
from luftpause_bench.quota.play import GOVERNED, GOVERNOR, POLICIES, Cell, Figures
from luftpause_bench.quota.shown import drawing, tables
from luftpause_bench.quota.workload import SCENES, Scene, smaller
from luftpause_bench.report import Report, cores, describe_versions, finish, parser

SEEDS: Final = 5
FIRST_SEED: Final = 101
LITELLM: Final = "LiteLLM Router"
SEEDS_MAX: Final = {"tenacity": 2, "openai SDK": 2, LITELLM: 1}  # they send or compute so much, and their seeds hardly differ
QUICK_TIMES: Final = 10
SIMULATED: Final = "time, agents and the provider; clients and governor are real"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a bound is missed."""
    options = _options(arguments)
    policies = list(available(options.policies, quick=options.quick and options.policies == list(POLICIES)))
    if options.real:
        return main_real(options, [*policies, *(NODES if shutil.which("redis-server") and options.policies == list(POLICIES) else ())])
    began = time.monotonic()
    scenes = [smaller(SCENES[name], QUICK_TIMES) if options.quick else SCENES[name] for name in options.scenes]
    cells = [Cell(scene, policy, seed) for scene in scenes for policy in policies for seed in _seeds(options, policy)]
    kept = Kept(options.results / "cells" / "quota.jsonl", fresh=options.fresh)
    if options.kept:
        cells = [cell for cell in cells if kept.get(cell) is not None]
    found = _played(cells, kept, options.jobs)
    report = Report(
        "quota",
        SIMULATED,
        _parameters(scenes),
        tuple(range(FIRST_SEED, FIRST_SEED + options.seeds)),
        tuple(each for scene in scenes for each in tables(scene, policies, found)),
        judge(found, CLIENTS),
        time.monotonic() - began,
        options.quick or not _is_whole(found),
        versions=describe_versions("httpx", "tenacity", "openai", "litellm"),
    )
    return finish(report, options, drawing(scenes, policies, found))


def main_http(arguments: Sequence[str] | None = None) -> int:
    """`--real`, as a benchmark of its own."""
    return main(["--real", *(sys.argv[1:] if arguments is None else arguments)])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("quota", __doc__, seeds=SEEDS)
    made.add_argument("--scenes", nargs="+", choices=list(SCENES), default=list(SCENES), metavar="NAME", help=f"of {', '.join(SCENES)}")
    made.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES), metavar="NAME", help=f"of {', '.join(POLICIES)}")
    made.add_argument("--jobs", type=int, default=cores(), metavar="N", help="processes; one per core by default")
    made.add_argument("--fresh", action="store_true", help="play all cells, those too that were played before")
    made.add_argument("--kept", action="store_true", help="play nothing: show what was played before")
    made.add_argument("--real", action="store_true", help="the incident over HTTP with real processes, an hour in two minutes")
    made.add_argument("--minutes", type=float, help="of --real, for each policy: 5, or 0.5 with --quick")
    made.add_argument("--at-once", type=int, default=16, metavar="N", help="of --real: so many policies beside each other; all by default")
    options = made.parse_args(arguments)
    options.minutes = options.minutes or (0.5 if options.quick else 5.0)
    options.seeds = options.seeds or (1 if options.quick else SEEDS)
    return options


def _seeds(options: argparse.Namespace, policy: str) -> range:
    return range(FIRST_SEED, FIRST_SEED + min(options.seeds, SEEDS_MAX.get(policy, options.seeds)))


def available(policies: Iterable[str], *, quick: bool = False) -> Iterable[str]:
    """Without those whose package is missing; it is said which and why."""
    for policy in policies:
        if policy == LITELLM and quick:
            print(f"{policy}: left out of --quick, it takes too long; name it with --policies", file=sys.stderr)
        elif policy == LITELLM and (why := _lacks_litellm()):
            print(f"{policy}: left out: {why}", file=sys.stderr)
        elif GOVERNED.get(policy, (True, ""))[1] == "article" and find_spec("luftpause.scheduler.quota.article") is None:
            print(f"{policy}: left out: this governor has no such policy", file=sys.stderr)
        else:
            yield policy


def _lacks_litellm() -> str:
    try:
        litellm_package()
    except ImportError as error:
        return str(error)
    return ""


def _played(cells: Sequence[Cell], kept: Kept, jobs: int) -> Found:
    known = {cell: figures for cell in cells if (figures := kept.get(cell)) is not None}
    missing = [cell for cell in cells if cell not in known]
    console = Console(file=sys.stderr)
    if known:
        console.print(f"{len(known):,} of {len(cells):,} cells were played before by the same code (--fresh: again)", highlight=False)
    playing = play_all(missing, min(jobs, max(1, len(missing))))
    for cell, figures in track(playing, "cells", len(missing), console=console, transient=True, disable=not console.is_terminal):
        kept.add(cell, figures)
        known[cell] = figures
    found: dict[tuple[str, str], list[Figures]] = {}
    for cell in cells:
        found.setdefault((cell.scene.name, cell.policy), []).append(known[cell])
    return found


def _is_whole(found: Found) -> bool:
    """All but LiteLLM's, which few have."""
    every = [(scene, policy) for scene in SCENES for policy in POLICIES if policy != LITELLM]
    return all(found.get(each) for each in every) and all(len(found[scene, GOVERNOR]) >= SEEDS for scene in SCENES)


def _parameters(scenes: Sequence[Scene]) -> Mapping[str, Any]:
    told: dict[str, Any] = {}
    for scene in scenes:
        details = scene.provider.details()
        agents = [to_builtins(agent) for agent in scene.agents]
        limits, hidden = to_builtins(details.limits), to_builtins(details.hidden)
        provider = {"limits": limits, "hidden": hidden, "latency_seconds": details.latency_seconds, "kind": scene.provider.kind}
        told[scene.name] = {"agents": agents, "provider": provider, "seconds": scene.seconds, "governor": config(scene, profile=True)}
    return told
