"""Which run would the specification take a turn for? Plain lists of who has carried which id, recounted for every question."""

import re
from dataclasses import dataclass, field

from luftpause.scheduler.core.events import TurnClass, TurnRequested

WEAK = re.compile(r".{0,15}|.*[^A-Za-z0-9][0-9]{1,9}|[^0-9A-Z]*[0-9]{1,9}")


@dataclass
class Branch:
    ids: tuple[str, ...]
    head: bytes
    since: float
    turn_class: TurnClass


@dataclass
class Lane:
    home: str = ""
    branches: list[Branch] = field(default_factory=list)


@dataclass
class Run:
    name: str
    seen: float
    seq: int = 0
    lanes: dict[str, Lane] = field(default_factory=dict)
    ended: bool = False  # forgotten when its turns in flight have finished


@dataclass
class Turn:
    asked: TurnRequested
    attempt: int
    run: str
    arrived: float
    serial: int
    without: set[str]
    bound: str = ""  # to the home it was placed at, though that was full
    only: str = ""  # the home that it waits for, or was placed at
    resumes: bool = False  # it went on from a pause of its lane, at the home
    returned: bool = False  # and was given back by it as full
    replica: str = ""
    placed: float = 0.0
    followed: bool = False


@dataclass
class Sighting:
    run: str
    head: bytes
    seen: float
    orphan: bool  # in a request before any answer was known to have it


class Memory:
    """Tool-call ids by caller."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.known: dict[tuple[str, str], list[Sighting]] = {}

    def recognise(self, event: TurnRequested, live: dict[str, Run], now: float) -> str:
        fits: set[str] = set()
        for id_ in event.tool_call_ids:
            found = self.carriers(event, id_, live, now)
            if not found:
                continue
            fits = found if not fits else fits & found
            if len(fits) < 2:
                return next(iter(fits), "")
        return ""

    def carriers(self, event: TurnRequested, id_: str, runs: dict[str, Run], now: float) -> set[str]:
        known = self.known.get((event.caller, id_), [])
        live = [entry for entry in known if entry.run in runs and now - entry.seen <= self.seconds]
        everyone = {entry.run for entry in live}
        if len(everyone) == 1 and not WEAK.fullmatch(id_):
            return everyone
        return {entry.run for entry in live if event.head_digest and entry.head == event.head_digest}

    def remember(self, turn: Turn, ids: tuple[str, ...], now: float, *, asked: bool = False) -> None:
        """`asked`: they came in its request, else in its answer."""
        for id_ in filter(None, ids):
            known = self.known.setdefault((turn.asked.caller, id_), [])
            same = [entry for entry in known if not WEAK.fullmatch(id_) or entry.head == turn.asked.head_digest]
            if not asked and any(entry.orphan and entry.run != turn.run and entry.seen >= turn.placed for entry in same):
                turn.followed = True
                continue
            mine = [entry for entry in same if entry.run == turn.run]
            if asked and mine and mine[0].head == turn.asked.head_digest:
                continue  # only an answer makes it new
            orphan = asked and not same
            known[:] = [entry for entry in known if entry not in mine]
            known.append(Sighting(turn.run, turn.asked.head_digest, now, orphan))

    def forget(self, name: str) -> None:
        self.known = {key: [entry for entry in known if entry.run != name] for key, known in self.known.items()}
