"""What stands in a log for the names that tell who somebody is or what was said?

Runs, callers, principals, tool-call ids, response ids and digests of requests become keyed hashes; which ones is a table of field names.
A hash keeps what the core's rules look at: equality, emptiness, parts of composed keys, and whether a tool-call id says anything by itself
(`call_0` does not). So the decisions are the same; only runs that are forgotten at the same instant may be so in another order.
"""

from collections.abc import Callable
from enum import Enum
from functools import cache
from hashlib import blake2b
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core.fifo import Fifo, fifo
from luftpause.scheduler.core.identity import says_nothing
from luftpause.scheduler.core.settings import EVERYBODY_ELSE
from luftpause.scheduler.core.sorted_set import SortedSet, sorted_set
from luftpause.scheduler.core.timing import Timer

REMEMBERED_MAX: Final = 50_000  # hashes kept, so that a name that comes often is hashed once
SHORT_CHARS: Final = 15  # of an id that says nothing by itself: below identity.ID_CHARS_MIN
LONG_CHARS: Final = 24
SEPARATOR: Final = "\x1f"  # between the parts of a key
RESYNCED: Final = "resync-"  # a branch that a dataplane remembered: its number and first tool-call id follow

Hide = Callable[["Names", Any], Any]


class Names:
    """One key's hashes. Without the key nobody can tell a name from its hash, nor join two logs of different keys."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}

    # ---- names

    def text(self, name: str) -> str:
        """The hash of a name, or of each part of a composed one. An empty one stays empty."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            known = self._known[name] = SEPARATOR.join([self._part(part) for part in name.split(SEPARATOR)])
        return known

    def _part(self, name: str) -> str:
        if not name:
            return ""
        digest = blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).hexdigest()
        return digest[:SHORT_CHARS] if says_nothing(name) else f"{digest[:LONG_CHARS]}h"  # no digit at its end: no counter

    def data(self, digest: bytes) -> bytes:
        return blake2b(digest, key=self._key, digest_size=16).digest() if digest else b""

    # ---- values

    def hide(self, value: Any) -> Any:
        """An event, a decision or a whole state with its names hashed."""
        if isinstance(value, SortedSet):
            return cast("SortedSet[Any]", value)
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, Map):
            return Map([(key, self.hide(item)) for key, item in cast("Map[Any, Any]", value).items()])
        if type(value) is tuple:
            return tuple([self.hide(item) for item in cast("tuple[Any, ...]", value)])
        return value

    def _struct(self, value: Struct) -> Any:
        changed: dict[str, Any] = {}
        for name, rule in _rules(type(value)):
            old = getattr(value, name)
            if old:  # nothing to hide in what is empty
                changed[name] = rule(self, old)
        return msgspec.structs.replace(value, **changed) if changed else value

    def all(self, value: Any) -> Any:
        """Every text in it is a name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        if isinstance(value, SortedSet):
            return sorted_set(self.all(item) for item in cast("SortedSet[Any]", value))
        if isinstance(value, Map):
            return Map([(self.all(key), self.all(item)) for key, item in cast("Map[Any, Any]", value).items()])
        if type(value) is tuple:
            return tuple([self.all(item) for item in cast("tuple[Any, ...]", value)])
        return self.hide(value)

    def keys(self, value: "Map[Any, Any]") -> "Map[Any, Any]":
        """A table by name."""
        return Map([(self.all(key), self.hide(item)) for key, item in value.items()])

    def seconds_of_pairs(self, value: "SortedSet[Any]") -> "SortedSet[Any]":
        """(anything, name), sorted."""
        return sorted_set((first, self.all(name)) for first, name in value)

    def lane(self, lane: tuple[str, str]) -> tuple[str, str]:
        """(run, model)."""
        return self.text(lane[0]), lane[1]

    def lanes(self, value: "Map[Any, Any]") -> "Map[Any, Any]":
        return Map([(self.lane(key), self.hide(item)) for key, item in value.items()])

    def queue_of_lanes(self, value: "Fifo[Any]") -> "Fifo[Any]":
        """(anything, lane), in the order in which they came."""
        return fifo([(first, self.lane(lane)) for first, lane in value])

    def line(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """Lanes."""
        return tuple([self.lane(lane) for lane in value])

    def above(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """(lane, anything)."""
        return tuple([(self.lane(lane), last) for lane, last in value])

    def waiters(self, value: "SortedSet[Any]") -> "SortedSet[Any]":
        """(arrival, turn, lane, class), sorted."""
        return sorted_set((arrived, turn, self.lane(lane), turn_class) for arrived, turn, lane, turn_class in value)

    def after_the_first(self, value: "SortedSet[Any]") -> "SortedSet[Any]":
        """(anything, name, name), sorted."""
        return sorted_set((item[0], *self.all(item[1:])) for item in value)

    def caller(self, name: str) -> str:
        """Of a configured one; `*` stands for all others."""
        return name if name == EVERYBODY_ELSE else self.text(name)

    def branch(self, name: str) -> str:
        """The turn whose answer it was; one from a dataplane's memory is named after its first tool-call id."""
        if not name.startswith(RESYNCED):
            return name
        prefix, number, id_ = name.split("-", 2)
        return name if id_.isdecimal() else f"{prefix}-{number}-{self.text(id_)}"

    def twin(self, key: tuple[str, str]) -> tuple[str, str]:
        """("run", "r" and its key), or (flow, body hash); somebody's flow may be named `run`."""
        first, second = key
        return (first, f"r{self.text(second[1:])}") if second[:1] == "r" else (self.text(first), self.data(bytes.fromhex(second)).hex())

    def twin_keys(self, keys: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple([self.twin(key) for key in keys])

    def twins(self, value: "Map[Any, Any]") -> "Map[Any, Any]":
        return Map([(self.twin(key), self.hide(item)) for key, item in value.items()])

    def due(self, item: tuple[float, int, str, str]) -> tuple[float, int, str, str]:
        """What a timer is for depends on which one it is."""
        at, timer, of, detail = item
        match Timer(timer):
            case Timer.RUN | Timer.IDS:
                return (at, timer, self.text(of), self.text(detail))
            case Timer.RESERVE:
                turn, _, model = detail.partition(SEPARATOR)
                return (at, timer, self.text(of), f"{self.branch(turn)}{SEPARATOR}{model}")
            case Timer.TWIN:
                return (at, timer, *self.twin((of, detail)))
            case _:
                return item

    def ended(self, value: frozenset[tuple[str, str, int]]) -> frozenset[tuple[str, str, int]]:
        """(run, model, turn_seq) of turns."""
        return frozenset([(self.text(run), model, turn_seq) for run, model, turn_seq in value])

    def timers(self, value: "SortedSet[Any]") -> "SortedSet[Any]":
        return sorted_set(self.due(item) for item in value)

    def wheel(self, value: "Map[Any, Any]") -> "Map[Any, Any]":
        return Map([(second, Map([(self.due(item), True) for item in due])) for second, due in value.items()])


HIDDEN: Final = Names.all
INSIDE: Final = Names.hide  # structs in it have rules of their own
KEYS: Final = Names.keys
CLEAR: Final = None

# By the field's name, which means one thing everywhere, or by class and field where it does not. What stands nowhere is hidden.
RULES: Final[dict[str, Hide | None]] = {
    **dict.fromkeys((
        "run", "run_id", "fresh_run", "parent", "caller", "principal", "flow", "key", "ids", "id_keys", "tool_call_ids", "answer_ids",
        "previous_response", "response", "responses", "head_digest", "body_hash",
    ), HIDDEN),
    **dict.fromkeys((
        "dataplane", "turn", "model", "api", "apis", "models", "name", "names", "url", "api_key_env", "replica", "replicas", "reason",
        "finish_reason", "without", "delivering", "turns", "home", "kind", "kept_home", "session", "boot", "query", "code", "message",
        "phase", "arrivals", "held", "place", "queue", "rank", "spec", "servers", "dataplane_names", "identifying", "queue_keys",
        "queues_of_home", "queues_of_model", "seconds", "dirty", "stale", "counters", "phases", "listed", "suspects", "unusable",
        "outcome", "load", "usage", "hold_reason", "turn_class", "waits_for", "waits_for", "patterns", "urls",
        "tools", "tool", "traceparent", "sent_to", "priority", "fallback", "fell", "asks", "lines", "given_up",
        "hosted", "asking", "dataplanes_expected",
        "firsts", "gone", "here", "last", "prompt", "context", "token_seconds", "fixed_seconds", "tokens_per_byte",
        "interactive", "interactive_gap", "answers_of_class", "results", "pauses", "batch_pauses", "run_seconds",
    ), CLEAR),
    **dict.fromkeys((
        "lanes", "tool_calls", "paused", "branches", "sightings", "dataplanes", "queues", "resyncing", "hello",
        "policy_state", "engines", "flying", "quota", "settings", "callers", "faults",
    ), INSIDE),
    "RunMemory.responses": INSIDE,
    "Place.lease": INSIDE,
    "Place.sent": CLEAR,
    "Resync.runs": INSIDE,
    "Resync.turns": INSIDE,
    "ToolCallMemory.id": HIDDEN,
    "ResponseMemory.id": HIDDEN,
    "Run.id": HIDDEN,
    "Turn.id": CLEAR,
    "Branch.turn": Names.branch,
    "Twin.keys": Names.twin_keys,
    "Guarded.lanes": Names.lanes,
    "Guarded.flows": KEYS,
    "Guarded.answers": KEYS,
    "Guarded.forks": KEYS,
    "Guarded.looks": Names.queue_of_lanes,
    "Guarded.steps": Names.seconds_of_pairs,
    "Guarded.touched": HIDDEN,
    "FlowAccount.waiting": Names.waiters,
    "Flying.lane": Names.lane,
    "Flying.words": HIDDEN,
    "Flying.above": Names.above,
    "Flying.stems": Names.line,
    "LaneAccount.above": Names.above,
    "Engine.prefixes": Names.lanes,
    "Engine.stems": Names.lanes,
    "Engine.order": Names.queue_of_lanes,
    "Queue.flows": KEYS,
    "Queue.heads": Names.seconds_of_pairs,
    "State.turns": INSIDE,
    "State.runs": KEYS,
    "State.callers": KEYS,
    "State.run_quotas": KEYS,
    "State.ids": KEYS,
    "State.responses": KEYS,
    "State.twins": Names.twins,
    "State.ended_runs": KEYS,
    "State.ended_order": Names.seconds_of_pairs,
    "State.response_order": Names.after_the_first,
    "State.ranks": Names.seconds_of_pairs,
    "State.timers": Names.timers,
    "State.wheel": Names.wheel,
    "Settings.policy": CLEAR,
    "CallerPriority.caller": Names.caller,
    "State.policy": CLEAR,  # this and the next are empty between two steps
    "State.decisions": CLEAR,
}  # fmt: skip


@cache
def _rules(of: type[Struct]) -> tuple[tuple[str, Hide], ...]:
    """The fields of a class that hold names, and how each is hidden."""
    found: list[tuple[str, Hide]] = []
    for name, hint in get_type_hints(of).items():
        rule = RULES.get(f"{of.__name__}.{name}", RULES.get(name, HIDDEN))
        if rule is not None and not speechless(hint):
            found.append((name, rule))
    return tuple(found)


def speechless(hint: Any) -> bool:
    """No text is in a value of this type."""
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, int | float | Enum | NoneType)
    if get_origin(hint) is Literal:
        return True
    return get_origin(hint) in {Union, UnionType} and all(speechless(kind) for kind in get_args(hint))
