"""What does a turn that was abandoned while held leave to its retry?"""

from luftpause.scheduler.core.indexes import Draft, arm, disarm
from luftpause.scheduler.core.model import GENERATIVE, Turn, Twin, TwinKey, run_key
from luftpause.scheduler.core.timing import Timer


def twin_of(d: Draft, turn: Turn) -> Twin | None:
    """A twin that was abandoned while held, whose arrival this turn may have: load balancers cut silent connections."""
    for key in _twin_keys(turn):
        for twin in d.twins.get(key, ()):
            if twin.until >= d.now:
                return twin
    return None


def _twin_keys(turn: Turn) -> tuple[TwinKey, ...]:
    """The same request first, then the same run: of several branches that were cut off each finds its own."""
    body: tuple[TwinKey, ...] = ((turn.flow, turn.body_hash.hex()),) if turn.body_hash else ()
    return (*body, ("run", "r" + run_key(turn.principal, turn.run_id))) if turn.kind == GENERATIVE else body


def leave_twin(d: Draft, turn: Turn) -> None:
    twin = Twin(turn.id, turn.arrived, d.now + d.settings.inherit_seconds, _twin_keys(turn))
    for key in twin.keys:
        known = d.twins.get(key, ())
        if len(known) >= d.settings.twins_per_key_max:  # the older ones have waited longer
            continue
        _put_twins(d, key, (*known, twin))


def inherit(d: Draft, twin: Twin) -> None:
    """It has been inherited, once, whichever key it was found by."""
    for key in twin.keys:
        _put_twins(d, key, tuple([other for other in d.twins.get(key, ()) if other != twin]))


def forget_twins(d: Draft, key: TwinKey) -> None:
    """The timer of the oldest twin under this key has fired."""
    _put_twins(d, key, tuple([twin for twin in d.twins.get(key, ()) if twin.until > d.now]))


def _put_twins(d: Draft, key: TwinKey, twins: tuple[Twin, ...]) -> None:
    """One timer per key, at its oldest twin."""
    old = d.twins.get(key, ())
    if old and old[:1] != twins[:1]:
        disarm(d, old[0].until, Timer.TWIN, *key)
    if twins:
        d.twins = d.twins.set(key, twins)
        if old[:1] != twins[:1]:
            arm(d, twins[0].until, Timer.TWIN, *key)
    elif old:
        d.twins = d.twins.delete(key)
