"""Which run does a turn belong to?

Harnesses that send no run id echo the tool-call ids of the answers they got. Engines reuse ids (`call_0` in every answer of every run),
so an id alone must never join two runs: ids that say nothing by themselves are looked up together with the digest of the conversation's
head.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.events import TurnRequested
from luftpause.scheduler.core.indexes import Draft, arm, disarm
from luftpause.scheduler.core.memory import RunMemory
from luftpause.scheduler.core.model import IdKey, Known, Run, Sighting, Turn
from luftpause.scheduler.core.runs import ids_due
from luftpause.scheduler.core.timing import Timer

ID_CHARS_MIN = 16  # a shorter id is not unique by itself
COUNTER_DIGITS_MAX = 9
DIGITS = "0123456789"
MIXED = re.compile(r"[0-9A-Z]")


class Identity(Struct, frozen=True, gc=False):
    """`run` empty: it is a new run. `home`: the replica that stores the response which the turn continues."""

    run: str = ""  # the run id, as headers show it
    stated: bool = False
    home: str = ""
    unknown_ids: bool = False  # it carries ids, and nobody has been seen with one of them
    unknown_response: bool = False  # it continues a response that nobody has been seen with


NEW_RUN = Identity()


def resolve(d: Draft, e: TurnRequested, keys: tuple[IdKey, ...]) -> Identity:
    """In this order: the stated run, the previous response, the tool-call ids."""
    response = d.responses.get((e.principal, e.previous_response)) if e.previous_response else None
    home = response.replica if response else ""
    unknown = response is None and bool(e.previous_response)
    if e.run:
        return Identity(e.run, stated=True, home=home, unknown_response=unknown)
    if response is not None:
        return Identity(response.run, stated=True, home=home)
    if not keys:
        return Identity(unknown_response=True) if unknown else NEW_RUN
    run, seen = by_ids(d, keys, e.head_digest)
    return Identity(run.id if run else "", unknown_ids=not seen, unknown_response=unknown)


def by_ids(d: Draft, keys: tuple[IdKey, ...], digest: bytes) -> tuple[Run | None, bool]:
    """
    The run that fits these ids (newest first), and whether any of them is known at all.

    The newest known id decides. If it fits several runs, older ids may tell them apart; if they don't, it is none of them.
    """
    newest = d.ids.get(keys[0])
    if newest is not None and len(newest.sightings) == 1 and newest.crowded_at < 0.0:  # the usual case: it fits one run
        only = newest.sightings[0]
        run = d.runs.get(only.run)
        if run is not None and only.seen >= d.now - d.settings.tool_call_memory_seconds:
            return run, True
    fitting: set[str] = set()
    seen = False
    for key in keys:
        known = d.ids.get(key)
        fits = set(_fits(d, known, digest)) if known else set[str]()
        seen = seen or known is not None
        if not fits:
            continue
        fitting = fitting & fits if fitting else fits
        if len(fitting) == 1:
            return d.runs[next(iter(fitting))], True
        if not fitting:
            break
    return None, seen


def id_key(principal: str, caller: str, id_: str, digest: bytes) -> IdKey | None:
    """None: it is empty, or says nothing by itself and there is no head to go with it."""
    if says_nothing(id_):
        return (principal, caller, id_, digest) if id_ and digest else None
    return (principal, caller, id_, b"")


def says_nothing(id_: str) -> bool:
    """
    Such an id counts only together with the digest of the head: a short one, or one that ends in a plain counter.

    That is one to nine digits after a character that is no letter of ASCII, or after nothing but small letters and signs: `call_search_12`,
    `functions.search:0`, `toolu7`. Random ids have capitals or digits in between, or a longer last part.
    """
    if len(id_) < ID_CHARS_MIN:
        return True
    stem = id_.rstrip(DIGITS)
    if not len(id_) - COUNTER_DIGITS_MAX <= len(stem) < len(id_):
        return False
    return not (stem[-1].isascii() and stem[-1].isalpha()) or MIXED.search(stem) is None


def _fits(d: Draft, known: Known, digest: bytes) -> list[str]:
    """The live runs that this id may stand for."""
    oldest = d.now - d.settings.tool_call_memory_seconds
    live = [sighting for sighting in known.sightings if sighting.seen >= oldest and sighting.run in d.runs]
    if len(live) > 1 or known.crowded_at >= oldest:
        live = [sighting for sighting in live if digest and sighting.head_digest == digest]
    return [sighting.run for sighting in live]


# ---- learning ---------------------------------------------------------------------------------------------------


def carried(d: Draft, run: Run, turn: Turn) -> Run:
    """The ids that a request carries belong to its run from then on. Returns the run, not stored."""
    for key in reversed(turn.id_keys):
        known = d.ids.get(key)
        last = known.sightings[-1] if known is not None and known.sightings else None
        if last is not None and last.run == run.key and last.head_digest == turn.head_digest:
            continue  # the usual case
        run = _learn(d, run, key, turn.head_digest, orphan=known is None, answer=False)
    return run


def answered(d: Draft, run: Run, turn: Turn, ids: tuple[str, ...]) -> tuple[Run, Turn]:
    """Ids seen in an answer. Returns run and turn, not stored; empty ids are never learned."""
    fresh = tuple([id_ for id_ in dict.fromkeys(ids) if id_ and id_ not in turn.answer_ids])
    if not fresh:
        return run, turn
    followed = turn.followed
    for id_ in fresh:
        key = id_key(turn.principal, turn.caller, id_, turn.head_digest)
        if key is None:
            continue
        known = d.ids.get(key)
        if known is not None and any(_came_first(sighting, run, turn) for sighting in known.sightings):
            followed = True
            continue
        run = _learn(d, run, key, turn.head_digest)
    kept = (*turn.answer_ids, *fresh)[-d.settings.ids_per_run_max :]
    return run, replace(turn, answer_ids=kept, followed=followed)


def _came_first(sighting: Sighting, run: Run, turn: Turn) -> bool:
    """
    Its continuation came before this report and became a run of its own.

    A request from before the turn was placed can't be its continuation: engines give the same ids again (`call_0`).
    """
    return sighting.orphan and sighting.run != run.key and sighting.seen >= turn.placed


def _learn(d: Draft, run: Run, key: IdKey, digest: bytes, *, orphan: bool = False, answer: bool = True) -> Run:
    """`answer`: its memory begins anew, as an answer carried it. What a request carries is only claimed."""
    anew = _sight(d, run, key, Sighting(run.key, digest, d.now, orphan), answer=answer)
    return run if anew is None else _remember(d, run, key, d.now, anew=anew)


def _sight(d: Draft, run: Run, key: IdKey, sighting: Sighting, *, answer: bool) -> bool | None:
    """Note who has carried the id. Whether the run had not carried it before; None: nothing new."""
    known = d.ids.get(key)
    if known is None:  # the usual case
        d.ids = d.ids.set(key, Known((sighting,)))
        return True
    mine = next((other for other in known.sightings if other.run == run.key), None)
    if mine is not None and (not sighting.head_digest or mine.head_digest == sighting.head_digest):
        if not answer or mine.seen >= sighting.seen:
            return None
        sighting = replace(sighting, head_digest=mine.head_digest)
    others = tuple([other for other in known.sightings if other.run != run.key])
    crowded = known.crowded_at
    if len(others) >= d.settings.runs_per_id_max:
        dropped, others = others[0], others[1:]
        crowded = d.now
        _disown(d, dropped.run, key)
    d.ids = d.ids.set(key, Known((*others, sighting), crowded))
    return mine is None


def _disown(d: Draft, run: str, key: IdKey) -> None:
    owner = d.runs.get(run)
    if owner is None:
        return
    left = tuple(item for item in owner.ids if item[1] != key)
    _rearm(d, owner, left)
    d.runs = d.runs.set(run, replace(owner, ids=left))


def _remember(d: Draft, run: Run, key: IdKey, seen: float, *, anew: bool) -> Run:
    others = run.ids if anew else tuple([item for item in run.ids if item[1] != key])
    return _kept(d, run, (*others, (seen, key)))


def _kept(d: Draft, run: Run, ids: tuple[tuple[float, IdKey], ...]) -> Run:
    """The run with the newest of these ids (oldest first), not stored; the others are forgotten."""
    most = d.settings.ids_per_run_max
    if len(ids) > most:
        for _, old in ids[:-most]:
            _drop_sighting(d, run.key, old)
        ids = ids[-most:]
    _rearm(d, run, ids)
    return replace(run, ids=ids)


def _rearm(d: Draft, run: Run, ids: tuple[tuple[float, IdKey], ...]) -> None:
    """Keep one timer per run, at its oldest id."""
    if run.ids and ids and run.ids[0][0] == ids[0][0]:
        return
    if run.ids:
        disarm(d, ids_due(d, run.ids), Timer.IDS, run.key)
    if ids:
        arm(d, ids_due(d, ids), Timer.IDS, run.key)


def _drop_sighting(d: Draft, run: str, key: IdKey) -> None:
    known = d.ids.get(key)
    if known is None:
        return
    left = tuple(sighting for sighting in known.sightings if sighting.run != run)
    d.ids = d.ids.set(key, replace(known, sightings=left)) if left else d.ids.delete(key)


def sweep_ids(d: Draft, key: str) -> None:
    """Drop this run's ids that are older than the memory; its timer has fired."""
    run = d.runs.get(key)
    if run is None:
        return
    oldest = d.now - d.settings.tool_call_memory_seconds
    left = tuple(item for item in run.ids if item[0] >= oldest)
    for _, id_ in run.ids[: len(run.ids) - len(left)]:
        _drop_sighting(d, key, id_)
    if left:
        arm(d, ids_due(d, left), Timer.IDS, key)
    d.runs = d.runs.set(key, replace(run, ids=left))


def recall_ids(d: Draft, run: Run, memory: RunMemory) -> Run:
    """Ids that a dataplane remembers of this run. Returns the run, not stored."""
    oldest = d.now - d.settings.tool_call_memory_seconds
    ids = {key: seen for seen, key in run.ids}
    for told in memory.tool_calls:
        key = id_key(memory.principal, memory.caller, told.id, told.head_digest) if told.seen >= oldest else None
        if key is None or _sight(d, run, key, Sighting(run.key, told.head_digest, told.seen), answer=True) is None:
            continue
        ids[key] = told.seen
    if len(ids) == len(run.ids) and all(ids[key] == seen for seen, key in run.ids):
        return run
    return _kept(d, run, tuple(sorted([(seen, key) for key, seen in ids.items()])))
