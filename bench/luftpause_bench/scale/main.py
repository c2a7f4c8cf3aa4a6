"""How many sub-agents, held turns and streams does one machine carry, and what do they take?

A thousand sub-agents in one runtime; five thousand held turns; a thousand open streams; and a quarter of an hour of work in which memory
must stay as it is. Engines, tools and clients are fakes, the services are real; each part has new processes.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from luftpause_bench.live.world import run
from luftpause_bench.report import Bound, Column, Report, Table, at_least, at_most, finish, parser
from luftpause_bench.scale import at_once, held_turns, steady_work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS: Final = ("spawned", "held", "streams", "steady")
MOST_JOURNAL: Final = 0.05
MOST_GROWTH: Final = 1.03


class Parameters(Struct, frozen=True):
    agents: int = 1_000
    held: int = 5_000
    streams: int = 1_000
    steady_seconds: float = 900.0  # longer than a busy process may put off its garbage
    kept_seconds: float = 60.0
    tool_seconds_max: float = at_once.TOOL_SECONDS_MAX
    turn_characters: int = held_turns.CHARACTERS


class Found(Struct, frozen=True):
    """None: this part was left out."""

    spawned: at_once.AtOnce | None = None
    held: held_turns.Taken | None = None
    streams: held_turns.Taken | None = None
    steady: steady_work.Steady | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed. A part that fails ends it with a message and status 2."""
    made = parser("scale", __doc__)
    made.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    options = made.parse_args(arguments)
    began = time.monotonic()
    parameters = Parameters(200, 1_000, 200, 20.0, 5.0) if options.quick else Parameters()
    found = measure(parameters, options.parts)
    part = options.quick or set(options.parts) != set(PARTS)
    report = report_of(parameters, found, time.monotonic() - began, quick=part, judges_growth=not options.quick)
    return finish(report, options, lambda figure: _draw(figure, found))


def measure(parameters: Parameters, parts: Sequence[str]) -> Found:
    """Raises LuftpauseError if anything fails: of thousands not one may."""
    return Found(
        spawned=run(lambda world: at_once.measure(world, parameters.agents)) if "spawned" in parts else None,
        held=run(lambda world: held_turns.held(world, parameters.held)) if "held" in parts else None,
        streams=run(lambda world: held_turns.streams(world, parameters.streams)) if "streams" in parts else None,
        steady=run(lambda world: steady_work.measure(world, parameters.steady_seconds, parameters.kept_seconds))
        if "steady" in parts
        else None,
    )


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, found: Found, seconds: float, *, quick: bool, judges_growth: bool) -> Report:
    tables = [table for table in (_of_spawned(found.spawned), _of_memory(found), _of_steady(found.steady)) if table is not None]
    return Report(
        "scale", "engines, tools and clients, in real time", parameters=to_builtins(parameters), seeds=(), tables=tuple(tables),
        bounds=tuple(_bounds(parameters, found, judges_growth=judges_growth)), seconds=seconds, quick=quick,
        data={"steady": to_builtins(found.steady.samples)} if found.steady else None,
    )  # fmt: skip


def _bounds(parameters: Parameters, found: Found, *, judges_growth: bool) -> list[Bound]:
    bounds: list[Bound] = []
    if found.spawned is not None:
        bounds.append(at_least("sub-agents that completed", found.spawned.agents, parameters.agents))
        bounds.append(at_most("tool calls that failed", found.spawned.failed_tool_calls, 0))
        bounds.append(at_most("the journal's part of the runtime's CPU time", found.spawned.journal_share, MOST_JOURNAL))
    if found.held is not None:
        bounds.append(at_least("held turns that were answered", found.held.answered, parameters.held))
    if found.steady is not None and judges_growth:
        bounds += [at_most(f"memory of the {name}, last / second quarter", each, MOST_GROWTH) for name, each in found.steady.growth.items()]
    return bounds


def _of_spawned(found: at_once.AtOnce | None) -> Table | None:
    if found is None:
        return None
    columns = (
        Column("sub-agents", "", 0), Column("all took", "s", 1), Column("their run times", "s", 0), Column("tool calls", "", 0),
        Column("runtime's CPU", "s", 1), Column("of it the journal", "%", 1), Column("runtime's memory", "MB", 0),
    )  # fmt: skip
    row = (
        found.agents, found.seconds, found.run_seconds_sum, found.tool_calls, found.cpu_seconds, 100 * found.journal_share, found.memory_mb,
    )  # fmt: skip
    return Table("sub-agents in one runtime", columns, (row,))


def _of_memory(found: Found) -> Table | None:
    columns = (
        Column("what"), Column("number", "", 0), Column("dataplane", "kB each", 1), Column("scheduler", "kB each", 1),
        Column("answered", "", 0), Column("in", "s", 1),
    )  # fmt: skip
    rows = [
        (name, each.count, each.bytes_each["dataplane"] / 1e3, each.bytes_each["scheduler"] / 1e3, each.answered, each.seconds)
        for name, each in (("held turns", found.held), ("open streams", found.streams))
        if each is not None
    ]
    return Table(f"memory, with {held_turns.CHARACTERS:,} characters a turn", columns, tuple(rows)) if rows else None


def _of_steady(found: steady_work.Steady | None) -> Table | None:
    if found is None:
        return None
    columns = (Column("service"), Column("memory", "MB", 1), Column("last / second quarter", "", 3), Column("CPU", "% of a core", 1))
    rows = [(name, found.memory_mb[name], found.growth[name], 100 * found.cpu_share[name]) for name in found.memory_mb]
    title = (
        f"{found.seconds:.0f} s of work, {found.runs} sub-agents beside 16 agents with their own loop; kept for {found.kept_seconds:.0f} s"
    )
    return Table(title, columns, tuple(rows))


def _draw(figure: "Figure", found: Found) -> None:
    if found.steady is None:
        return
    axes = figure.subplots()
    for name in found.steady.memory_mb:
        axes.plot(
            [sample.at / 60 for sample in found.steady.samples], [sample.memory_mb[name] for sample in found.steady.samples], label=name
        )
    axes.set_ylim(0)
    axes.set_xlabel("minutes of work")
    axes.set_ylabel("MB of memory")
    axes.legend()
