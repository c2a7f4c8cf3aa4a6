"""How does a scheduler's status look on a terminal?"""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from luftpause.cli.status_ask import Json, Seen

HELD_SHOWN: Final = 8
CALLERS_SHOWN: Final = 8
RUNS_SHOWN: Final = 12
NARROW_CELLS: Final = 60
BAR_CELLS: Final = 24
NUMBER_CELLS: Final = 4
SPARK_CELLS: Final = 40
SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARKS_ASCII: Final = "_.-=+*#@"
HEALTH: Final = {"healthy": "green", "unhealthy": "bold red", "unknown": "yellow"}
STATES: Final = {"Completed": "green", "Failed": "bold red", "AwaitingApproval": "yellow"}


class Marks:
    """The characters of bars: what a terminal without Unicode shows."""

    def __init__(self, *, ascii_only: bool) -> None:
        self.full, self.batch, self.kept, self.free, self.cap = "#=+.|" if ascii_only else "█▓░·│"
        self.sparks = SPARKS_ASCII if ascii_only else SPARKS
        self.none = "-" if ascii_only else "–"


def problems(status: Json) -> list[str]:
    """What needs attention, in sentences; empty: nothing does."""
    core = status["state"]
    found: list[str] = []
    if not core["placing"]:
        found.append("nothing is placed yet: the scheduler waits for the dataplanes that it expects after a start")
    if not core["dataplanes"]:
        found.append("no dataplane is connected: turns can't reach the engines")
    found += [f"dataplane {each['name']} is not connected" for each in core["dataplanes"] if not each["connected"]]
    if not core["replicas"]:
        found.append("no replica is configured")
    for replica in core["replicas"]:
        found += _of_replica(replica)
    return found + _of_quotas(status)


def _of_quotas(status: Json) -> list[str]:
    quota: Json = status.get("quota") or {}
    store: Json = quota.get("store") or {}
    found = (
        [f"the shared ledger of quotas is {store['mode']}: this node keeps to its safe share"] if store.get("mode", "up") != "up" else []
    )
    unpaid = [target["name"] for target in quotas_of(status) if target["breaker"]["mode"] == "disabled"]
    return found + [f"quota {name} is out of credit: no call goes there until it is paid and enabled" for name in unpaid]


def _of_replica(replica: Json) -> Iterable[str]:
    name = replica["name"]
    if replica["health"] == "unhealthy":
        yield f"{name} is unhealthy for {duration(replica['health_seconds'])}; no turns go there"
    if replica["health"] == "unknown":
        yield f"{name} has not answered a probe yet"
    if replica["load"] == "unknown":
        yield f"{name} no longer reports its load; its last cap holds"
    if replica["suspected_by"]:
        yield f"{', '.join(replica['suspected_by'])} could not connect to {name}"
    if replica["unusable_by"]:
        yield f"{', '.join(replica['unusable_by'])} lacks the key of {name} (api_key_env)"


def view(seen: Seen, width: int, *, ascii_only: bool = False) -> RenderableType:
    """All of it, for a terminal so wide."""
    marks = Marks(ascii_only=ascii_only)
    core = seen.status["state"]
    room = width - 2 if width > NARROW_CELLS else width
    parts: list[RenderableType] = [_head(seen, core, marks, min(SPARK_CELLS, room - 18))]
    if found := problems(seen.status):
        parts.append(Text("\n".join(f"! {each}" for each in found), style="bold yellow"))
    parts.append(_replicas(core, marks, room))
    parts.append(_held(core, marks, room))
    parts.append(_callers(core, marks, room))
    if targets := quotas_of(seen.status):
        parts.append(_quotas(targets, marks))
    if seen.runtime is not None:
        parts.append(_runs(seen.runtime, marks, room))
    spaced = [each for part in parts for each in (part, Text())][:-1]
    return Padding(Group(*spaced), (0, 1)) if width > NARROW_CELLS else Group(*spaced)


def _head(seen: Seen, core: Json, marks: Marks, cells: int) -> RenderableType:
    status = seen.status
    phases = {phase: sum(classes.values()) for phase, classes in core["runs"].items()}
    in_flight = sum(each["in_flight"] for each in core["held_by_class"])
    head = Text()
    head.append("luftpause", style="bold cyan")
    head.append(f"  policy {core['policy']}, up {duration(status['uptime_seconds'])}, {status['events_per_second']:g} events/s\n")
    head.append(f"{in_flight} in flight, {core['held']} held", style="bold")
    head.append(f"; runs: {phases['generating']} generating, {phases['paused']} paused, {phases['idle']} idle")
    if seen.samples:
        head.append(f"\nin flight  {spark([row[3] + row[4] for row in seen.samples], marks, cells)}")
        head.append(f"\nheld       {spark([row[1] + row[2] for row in seen.samples], marks, cells)}")
    return head


def _replicas(core: Json, marks: Marks, room: int) -> RenderableType:
    replicas: list[Json] = [*core["replicas"], *core["replicas_removed"]]
    removed = {each["name"] for each in core["replicas_removed"]}
    most = max([1, *(max(each["cap"] or 0, each["in_flight"] + each["paused_interactive"]) for each in replicas)])
    table = _table("Replica", "Health", "In flight of cap", "", "Running", "Waiting", "Held", numbers=(3, 4, 5, 6))
    for each in replicas:
        health = "removed" if each["name"] in removed else each["health"]
        cap = "no cap" if each["cap"] is None else str(each["cap"])
        reported = [str(each[key]) if each["load"] == "known" else marks.none for key in ("running", "waiting")]
        table.add_row(
            Text(each["name"]), Text(health, style=HEALTH.get(health, "yellow")), bar(each, most, marks), f"{each['in_flight']} / {cap}",
            *reported, str(each["held"]),
        )  # fmt: skip
    return _fitting(table, room, (2, 5, 4, 6))


def bar(replica: Json, most: int, marks: Marks) -> Text:
    """Interactive, batch and kept places as a bar on a scale that ends at `most`; a stroke where the cap is."""
    classes: dict[str, int] = replica["in_flight_by_class"]
    cells: list[tuple[str, str]] = []
    edges = (
        (classes.get("interactive", 0), marks.full, "cyan"),
        (classes.get("batch", 0), marks.batch, "magenta"),
        (replica["paused_interactive"], marks.kept, ""),
    )
    reached = 0
    for count, mark, style in edges:
        reached += count
        cells += [(mark, style)] * (min(BAR_CELLS, round(BAR_CELLS * reached / most)) - len(cells))
    cells += [(marks.free, "dim")] * (BAR_CELLS - len(cells))
    if replica["cap"] is not None:
        at = min(BAR_CELLS, round(BAR_CELLS * replica["cap"] / most))
        cells.insert(at, (marks.cap, "bold"))
    return Text.assemble(*cells)


def _held(core: Json, marks: Marks, room: int) -> RenderableType:
    if not core["held"]:
        return Text("nothing is held", style="dim")
    reasons = {reason: sum(classes.values()) for reason, classes in core["held_by_reason"].items()}
    by = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda each: -each[1]) if count)
    turns: list[Json] = core["held_turns"][:HELD_SHOWN]
    table = _table("Held turn of run", "For", "Reason", "Waits for", "Caller", "Class", numbers=(1,), note=f"{core['held']} held: {by}")
    for turn in turns:
        age = duration(turn["held_seconds"])
        words = (turn["run"] or turn["turn"], age, turn["reason"], turn["waits_for"], turn["caller"] or marks.none, turn["turn_class"])
        table.add_row(*map(Text, words))
    return _fitting(table, room, (5, 4, 3)) if room <= NARROW_CELLS else table


def _callers(core: Json, marks: Marks, room: int) -> RenderableType:
    callers: list[Json] = core["callers_busiest"][:CALLERS_SHOWN]
    if not callers:
        return Text("no caller has a turn in flight", style="dim")
    whole = max(1, sum(each["in_flight"] + each["passes"] for each in (*core["replicas"], *core["replicas_removed"])))
    waits = {each["name"]: each["longest_wait_seconds"] for each in core["held_by_caller"]}
    table = _table("Caller", "Share", "", "In flight", "Held", "Longest wait", numbers=(2, 3, 4, 5), note=f"{core['callers']} callers")
    for each in callers:
        part = each["in_flight"] / whole
        wait = duration(waits[each["name"]]) if waits.get(each["name"]) is not None else marks.none
        filled = round(BAR_CELLS * min(1.0, part))
        share = Text.assemble((marks.full * filled, "cyan"), (marks.free * (BAR_CELLS - filled), "dim"))
        table.add_row(Text(each["name"] or "(none)"), share, f"{part:.0%}", str(each["in_flight"]), str(each["held"]), wait)
    return _fitting(table, room, (1, 5))


def quotas_of(status: Json) -> list[Json]:
    """The targets of the rate governor; empty: there are none."""
    quota: Json = status.get("quota") or {}
    return quota.get("targets", [])


def _quotas(targets: Sequence[Json], marks: Marks) -> RenderableType:
    """A line per limit; what is of the whole target stands in its first."""
    lights = {"green": "green", "amber": "yellow", "red": "bold red"}
    table = _table("Quota", "Limit", "Light", "Free", "of", "Renews in", "Breaker", "In flight", "Waiting", numbers=(3, 4, 5, 7, 8))
    for column in table.columns[:2]:
        column.no_wrap = False  # names are cut before anything else
    for target in targets:
        whole = [
            Text(target["breaker"]["mode"].replace("emptive_open", "emptive")),
            str(target["leases"]["out"]),
            str(sum(target["shared_pool"]["waiting"])),
        ]
        name = target["name"]
        for scope in target["traffic_light"]["scopes"]:
            renews = marks.none if scope["renews_seconds"] is None else duration(scope["renews_seconds"])
            light = Text(scope["light"], style=lights.get(scope["light"], ""))
            names = [Text(each, no_wrap=True, overflow="ellipsis") for each in (name, scope["name"])]
            table.add_row(*names, light, _units(scope["free"]), _units(scope["capacity"]), renews, *whole)
            name, whole = "", ["", "", ""]
    return table


def _units(count: float) -> str:
    return f"{round(count, 1):.15g}"


def _runs(runtime: Json, marks: Marks, room: int) -> RenderableType:
    runs: list[Json] = runtime["runs"]
    rows = list(_tree(runs))
    running = sum(run["state"] in {"Running", "AwaitingApproval"} for run in runs)
    note = f"{len(runs)} runs, {running} not ended; figures are of the whole subtree"
    table = _table("Run", "State", "Doing", "Turns", "Tools", "Prompt", "Output", numbers=(3, 4, 5, 6), note=note)
    for run, depth in rows[:RUNS_SHOWN]:
        costs = run["subtree"]
        waits = [each["tool"] for each in run["pending_approvals"]]
        table.add_row(
            Text("  " * depth + run["handle"]), Text(run["state"], style=STATES.get(run["state"], "")),
            Text(f"approval of {waits[0]}" if waits else run["doing"] or marks.none),
            *(str(costs[key]) for key in ("turns", "tool_calls", "prompt_tokens", "completion_tokens")),
        )  # fmt: skip
    return _fitting(table, room, (2, 4, 3)) if room <= NARROW_CELLS else table


def _tree(runs: Sequence[Json]) -> Iterable[tuple[Json, int]]:
    """Each run before its children, the newest root first, with how deep it is."""
    by_handle = {run["handle"]: run for run in runs}
    stack: list[tuple[Json, int]] = [(run, 0) for run in runs if run["parent"] not in by_handle]
    while stack:
        run, depth = stack.pop()
        yield run, depth
        stack += [(by_handle[child], depth + 1) for child in reversed(run["children"]) if child in by_handle]


def spark(values: Sequence[int], marks: Marks, cells: int = SPARK_CELLS) -> str:
    """The newest values as a row of bars on a scale of their own, with the last in figures."""
    shown = values[-max(1, cells) :]
    most = max(1, *shown)
    top = len(marks.sparks) - 1
    return "".join(marks.sparks[0 if not value else max(1, round(top * value / most))] for value in shown) + f" {shown[-1]}"


def duration(seconds: float) -> str:
    """As a person says it."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"


def _fitting(table: Table, room: int, spare: Sequence[int]) -> Table:
    """Without the columns of these numbers, the first first, until nothing has to be cut."""
    console = Console(width=1000)
    kept = list(range(len(table.columns)))
    fitting = table
    for number in spare:
        if Measurement.get(console, console.options, fitting).maximum <= room:
            break
        kept.remove(number)
        fitting = _with(table, kept)
    return fitting


def _with(table: Table, kept: Sequence[int]) -> Table:
    """These columns of it; a figure whose bar is left out takes the bar's heading."""
    heads: list[str] = []
    for number in kept:
        own, bars = str(table.columns[number].header), str(table.columns[number - 1].header).removesuffix(" of cap")
        heads.append(own if own or number - 1 in kept else bars)
    numbers = tuple(place for place, number in enumerate(kept) if table.columns[number].justify == "right")
    result = _table(*heads, numbers=numbers, note=str(table.caption or ""))
    for row in zip(*(table.columns[number].cells for number in kept), strict=True):
        result.add_row(*row)
    return result


def _table(*columns: str, numbers: tuple[int, ...] = (), note: str = "") -> Table:
    """Columns are a space apart, so that 80 characters are enough."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="dim")
    table.caption, table.caption_justify, table.caption_style = note or None, "left", "dim"
    for index, column in enumerate(columns):
        number = index in numbers
        least = max(NUMBER_CELLS, len(column)) if number else None
        table.add_column(column, justify="right" if number else "left", no_wrap=True, overflow="ellipsis", min_width=least)
    return table
