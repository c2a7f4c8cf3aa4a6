"""What do events and decisions alone say about turns, places, caps and pauses?

Kept from what the scheduler is told and what it answers, never from its state, by rules written anew from the specification. Turns, places
and bursts are exact. Where a rule would take all of the core again the books are on the safe side: their caps are never below the right
one, and the places that they keep for paused runs never more than the right number.
"""

from collections import Counter
from collections.abc import Iterable
from math import inf

from luftpause.scheduler.core.decisions import Decision, Expire, Held, HoldReason, Place, Refuse
from luftpause.scheduler.core.events import (
    ConfigChanged,
    DataplaneAlive,
    DataplaneLost,
    Event,
    Kind,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    ReplicaUnusable,
    Resync,
    ReturnReason,
    RunEnded,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)
from luftpause.scheduler.core.memory import TurnMemory
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.entries import Entry, Left, Peer
from luftpause_bench.sim.pools import GONE, Pool

Kept = tuple[float, str]  # until when, at which replica


class Books:
    """The books on one scheduler. `take` each event with what was decided, before anything is asked."""

    def __init__(self, settings: Settings, specs: Iterable[ReplicaSpec], now: float) -> None:
        self.settings = settings
        self.now = self.started_at = now
        self.number = 0  # of the event
        self.held_anew: list[Entry] = []  # by this event, in their first attempt
        self.turns: dict[str, Entry] = {}
        self.waiting: dict[str, Entry] = {}
        self.pools = {spec.name: Pool(spec, spec.models or ()) for spec in specs}
        self.peers: dict[str, Peer] = {}
        self.flows: Counter[tuple[str, str]] = Counter()  # in flight of each caller
        self.kept: dict[str, list[Kept]] = {}  # by run: places kept for it
        self.seen_runs: set[str] = set()  # had a turn in flight, or were told of by a dataplane
        self.carried: set[str] = set()  # ids that a request has carried
        self.left: dict[tuple[str, str, bytes], Left] = {}  # by body: what its retry inherits for certain
        self.leavings: dict[tuple[str, str, bytes] | str, list[Left]] = {}  # by body and by run: what a retry may inherit
        self._left_by: dict[str, list[tuple[str, str, bytes]]] = {}  # run -> bodies
        self._bodies: dict[str, tuple[str, str, bytes]] = {}  # turn -> principal, caller, body

    def take(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        """In the order in which it happened: what was due first, then the event, then what it made possible."""
        self.number += 1
        self.held_anew = []
        self.now = max(self.now, event.now)
        mine = getattr(event, "turn", "")
        known = self.turns.get(mine)
        absorbed = isinstance(event, TurnFinished | TurnFailed | TurnAbandoned) and known is not None and bool(known.replica)
        if absorbed:
            self._absorb(event)
        answered = getattr(event, "attempt", 0) + isinstance(event, TurnReturned)
        answered = inf if isinstance(event, TurnAbandoned) else answered  # what is said of its turn was due before
        for decision in decisions:
            heard = isinstance(event, ReplicaProbed | Resync) and isinstance(decision, Place)  # what was due before comes before all places
            asked = isinstance(decision, Place | Held | Refuse) and decision.turn == mine and decision.attempt >= answered
            if not absorbed and (heard or asked):
                self._absorb(event)
                absorbed = True
            self._decided(decision)
        if not absorbed:
            self._absorb(event)

    # ---- decisions ----------------------------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        match decision:
            case Place():
                self._place(decision)
            case Held():
                entry = self.turns[decision.turn]
                self._belongs(entry, decision.run)
                if entry.reason is not decision.reason:
                    entry.reason, entry.told = decision.reason, self.now
                if not entry.first_told and decision.reason is not HoldReason.IDENTITY:
                    entry.first_told = self.number
                    self.held_anew += [entry] if entry.attempt == 1 else []
            case Refuse() | Expire():
                entry = self.turns.get(decision.turn)
                if entry is not None:
                    self._drop(entry)
            case _:
                pass

    def _place(self, decision: Place) -> None:
        entry = self.turns[decision.turn]
        if entry.replica:
            return  # the same answer again
        self._belongs(entry, decision.run)
        entry.earliest = self._earliest(entry)
        entry.replica, entry.placed = decision.replica, self.now
        self.waiting.pop(entry.turn, None)
        self._count(entry, 1)
        if entry.generative:
            self.pool(entry.replica).arrives(self.now)
        self.kept.pop(entry.run_key, None)  # whichever of its branches it follows
        entry.new_run = entry.run_key not in self.seen_runs
        if entry.generative:
            self.seen_runs.add(entry.run_key)

    def _belongs(self, entry: Entry, run: str) -> None:
        """Another turn of a run may inherit what one of them has left: then its own retry does not."""
        fresh, entry.run = entry.run != run, run
        for body in self._left_by.pop(entry.run_key, ()) if fresh else ():
            self.left.pop(body, None)

    def _inherits_by(self, entry: Entry) -> list[tuple[str, str, bytes] | str]:
        """Its body, and its run if that is known: turns that have one of them in common may be retries of each other."""
        body, run = self._bodies.get(entry.turn), entry.run or entry.stated
        found: list[tuple[str, str, bytes] | str] = [] if body is None else [body]
        return [*found, f"{run}\x1f{entry.principal}"] if run and entry.generative else found

    def _earliest(self, entry: Entry) -> float:
        left = [left for key in self._inherits_by(entry) for left in self.leavings.get(key, ())]
        return min([entry.arrived, *(each.arrived for each in left if each.until >= entry.asked)])

    def pool(self, name: str) -> Pool:
        """The replica, or one that is only remembered."""
        found = self.pools.get(name)
        if found is None:
            found = self.pools[name] = Pool(GONE, ())
        return found

    def peer(self, name: str) -> Peer:
        """The dataplane of this name."""
        return self.peers.setdefault(name, Peer())

    def _count(self, entry: Entry, by: int) -> None:
        pool = self.pool(entry.replica)
        self.flows[entry.flow] += by
        if not entry.generative:
            pool.passes += by
            return
        pool.flying += by

    def _drop(self, entry: Entry) -> None:
        """It is over, or given back."""
        self.waiting.pop(entry.turn, None)
        self.turns.pop(entry.turn, None)
        if entry.replica:
            self._free(entry)

    def _free(self, entry: Entry) -> None:
        pool = self.pool(entry.replica)
        pool.peak = max(pool.peak, pool.flying + self.reserved(entry.replica))
        self._count(entry, -1)
        entry.replica = ""

    def reserved(self, replica: str, *, but: str = "") -> int:
        """Places surely kept there for paused runs, except this one."""
        return sum(
            where == replica and until > self.now for run, kept in self.kept.items() if run != but for until, where in kept
        )  # fmt: skip

    # ---- events -------------------------------------------------------------------------------------------------

    def _absorb(self, event: Event) -> None:
        match event:
            case TurnRequested():
                self._requested(event)
            case TurnAbandoned() | TurnFinished() | TurnFailed():
                self._ended(event)
            case TurnReturned():
                self._returned(event)
            case ReplicaProbed():
                self._probed(event)
            case Resync():
                self._resync(event)
            case _:
                self._rare(event)

    def _rare(self, event: Event) -> None:
        match event:
            case DataplaneLost():
                self._lost(event)
            case DataplaneAlive():
                for name in event.delivering:
                    self.pool(name).delivered_at = self.now
            case ReplicaSuspected() | ReplicaUnusable():
                self._avoided(event)
            case ConfigChanged():
                self._configured(event)
            case RunEnded():
                key = f"{event.run}\x1f{event.principal}"
                self.kept.pop(key, None)
                for entry in self.turns.values():
                    entry.keeps_nothing = entry.keeps_nothing or entry.run_key == key
            case _:
                pass

    def _avoided(self, event: ReplicaSuspected | ReplicaUnusable) -> None:
        peer = self.peer(event.dataplane)
        if isinstance(event, ReplicaUnusable):
            peer.unusable.add(event.replica)
        elif self.pool(event.replica).spec is not GONE:
            peer.suspects.add(event.replica)

    def _requested(self, event: TurnRequested) -> None:
        known = self.turns.get(event.turn)
        if known is not None and event.attempt <= known.attempt:
            return
        if known is not None:
            self._drop(known)
        entry = Entry(
            event.turn, event.attempt, event.dataplane, event.model, event.kind is Kind.GENERATIVE, event.turn_class, event.principal,
            event.caller, event.arrived if 0.0 < event.arrived < event.now else event.now, event.api, ids=event.tool_call_ids,
            asked=event.arrived if 0.0 < event.arrived < event.now else event.now, stated=event.run, without=event.without,
            responds=bool(event.previous_response),
        )  # fmt: skip
        if event.body_hash:
            body = event.principal, event.caller, event.body_hash
            left = self.left.pop(body, None)
            if left is not None and left.until - 0.1 > self.now:
                entry.arrived = min(entry.arrived, left.arrived)
            self._bodies[event.turn] = body
        self.carried.update(event.tool_call_ids)
        self.peer(event.dataplane)
        self.turns[event.turn] = self.waiting[event.turn] = entry

    def _ended(self, event: TurnAbandoned | TurnFinished | TurnFailed) -> None:
        entry = self.turns.get(event.turn)
        if entry is None or entry.attempt != event.attempt:
            return
        body = self._bodies.get(event.turn)
        if isinstance(event, TurnAbandoned) and not entry.replica:
            until = self.now + self.settings.inherit_seconds
            for key in self._inherits_by(entry):
                self.leavings.setdefault(key, []).append(Left(self._earliest(entry), until))
            if body is not None:
                self.left[body] = Left(entry.arrived, until)
                self._left_by.setdefault(entry.run_key, []).append(body)
        self._bodies.pop(event.turn, None)
        replica = entry.replica
        self._drop(entry)
        if isinstance(event, TurnFinished) and replica:
            self._pauses(entry, event, replica)

    def _pauses(self, entry: Entry, event: TurnFinished, replica: str) -> None:
        if self.settings.policy != "original":
            return  # it keeps no places
        seconds = self.settings.reserve_seconds_max or inf
        surely = (
            event.paused
            and entry.generative
            and not entry.keeps_nothing
            and entry.turn_class is TurnClass.INTERACTIVE
            and self.carried.isdisjoint(event.tool_call_ids)
        )
        alone = not any(other.run == entry.run and other.replica for other in self.turns.values()) if surely else False
        if surely and alone:
            self.kept[entry.run_key] = [(self.now + seconds, replica)]

    def _returned(self, event: TurnReturned) -> None:
        entry = self.turns.get(event.turn)
        if entry is None or entry.attempt != event.attempt or not entry.replica:
            return
        name = entry.replica
        pool = self.pool(name)
        self._free(entry)
        entry.attempt += 1
        entry.reason, entry.first_told = None, 0
        self.waiting[entry.turn] = entry
        if event.reason is ReturnReason.UNREACHABLE:
            entry.without = (*entry.without, name)
            return
        pool.is_full(generative=entry.generative)

    # ---- replicas -----------------------------------------------------------------------------------------------

    def _probed(self, event: ReplicaProbed) -> None:
        pool = self.pools.get(event.replica)
        if pool is None or pool.spec is GONE:
            return
        pool.answered(event.outcome, self.now, self.settings)
        if event.outcome is ProbeOutcome.OK:
            for peer in self.peers.values():
                peer.suspects.discard(event.replica)
            if event.models is not None and pool.spec.models is None:
                pool.models = event.models
            pool.reported(event.load, self.reserved(event.replica), self.now, self.settings)

    def _configured(self, event: ConfigChanged) -> None:
        specs = {spec.name: spec for spec in event.replicas}
        for name, pool in tuple(self.pools.items()):
            spec = specs.pop(name, None)
            if spec is None or spec.url != pool.spec.url:
                self._prefixes_are_gone(name)
                for peer in self.peers.values():
                    peer.suspects.discard(name)
            if spec is None:
                pool.gone()
            elif spec != pool.spec:
                self.pools[name] = pool.configured(spec)
        self.pools |= {name: Pool(spec, spec.models or ()) for name, spec in specs.items()}

    def _prefixes_are_gone(self, name: str) -> None:
        """Another engine is behind the name, or none: nothing is kept there for runs that were paused."""
        self.kept = {run: kept for run, kept in self.kept.items() if all(where != name for _, where in kept)}
        for entry in self.turns.values():
            entry.keeps_nothing = entry.keeps_nothing or entry.replica == name

    # ---- dataplanes ---------------------------------------------------------------------------------------------

    def _resync(self, event: Resync) -> None:
        peer = self.peer(event.dataplane)
        same_boot = peer.boot == event.boot
        listed = {memory.turn: memory for memory in event.turns} if same_boot else {}
        for entry in [entry for entry in self.turns.values() if entry.dataplane == event.dataplane]:
            memory = listed.get(entry.turn)
            if not entry.replica or memory is None or (memory.attempt, memory.replica) != (entry.attempt, entry.replica):
                self._drop(entry)
        for memory in event.turns:
            self._recalled(event.dataplane, memory)
        for run in event.runs:
            self.kept.pop(f"{run.run}\x1f{run.principal}", None)
            self.seen_runs.add(f"{run.run}\x1f{run.principal}")
            self.carried.update(told.id for told in run.tool_calls)
        peer.session, peer.boot, peer.lost = event.session, event.boot, inf
        peer.suspects = set()
        peer.unusable = peer.unusable if same_boot else set()

    def _recalled(self, dataplane: str, memory: TurnMemory) -> None:
        """A turn that a dataplane has in flight."""
        known = self.turns.get(memory.turn)
        if known is not None and known.replica:
            return
        if known is not None:
            self._drop(known)
        entry = Entry(
            memory.turn, memory.attempt, dataplane, memory.model, memory.kind is Kind.GENERATIVE, memory.turn_class, memory.principal,
            memory.caller, memory.placed, run=memory.run, replica=memory.replica, placed=self.now,
        )  # fmt: skip
        self.turns[entry.turn] = entry
        self._count(entry, 1)
        self.pool(entry.replica).seen += entry.generative
        self.kept.pop(entry.run_key, None)
        self.seen_runs.add(entry.run_key)

    def _lost(self, event: DataplaneLost) -> None:
        peer = self.peer(event.dataplane)
        if peer.session != event.session or peer.lost < inf:
            return
        peer.lost = self.now
        for entry in [entry for entry in self.waiting.values() if entry.dataplane == event.dataplane]:
            self._drop(entry)

    # ---- questions ----------------------------------------------------------------------------------------------

    def could_go(self, entry: Entry, name: str) -> bool:
        """Nothing but room may keep this held turn from the replica; certain only for a turn of a new run."""
        pool, peer = self.pool(name), self.peer(entry.dataplane)
        barred = name in entry.without or name in peer.suspects or name in peer.unusable
        return entry.generative and pool.health == "healthy" and pool.serves(entry.model) and not barred and not pool.spec.apis

    def is_new(self, entry: Entry) -> bool:
        """Its run has no home yet, and nothing binds it to one."""
        return bool(entry.run) and not entry.responds and entry.run_key not in self.seen_runs
