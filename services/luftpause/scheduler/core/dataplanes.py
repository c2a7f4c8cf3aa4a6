"""What does the scheduler learn and forget when dataplanes come, speak and go?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import EndRun, Probe
from luftpause.scheduler.core.events import DataplaneAlive, DataplaneLost, Kind, ReplicaSuspected, ReplicaUnusable, Resync
from luftpause.scheduler.core.holding import drop_waiting, requeue, requeue_lanes
from luftpause.scheduler.core.identity import recall_ids
from luftpause.scheduler.core.indexes import Draft, arm, count_caller, dataplane_of, put_dataplane, put_replica, turns_of
from luftpause.scheduler.core.memory import LaneMemory, RunMemory, TurnMemory
from luftpause.scheduler.core.model import Branch, Dataplane, Lane, Resyncing, Run, Turn, TurnPhase, run_key
from luftpause.scheduler.core.places import count_in_flight
from luftpause.scheduler.core.queues import replicas_changed
from luftpause.scheduler.core.quota_model import RunQuota, TurnQuota
from luftpause.scheduler.core.requests import identify_all
from luftpause.scheduler.core.responses import remember_response
from luftpause.scheduler.core.runs import add_branch, drop_branch, forget_unused, lane_of, move_home, put_run, with_lane
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.core.tombstones import ended_at, told_before
from luftpause.scheduler.core.turns import end, expired


def resync(d: Draft, e: Resync) -> None:
    """A complete Hello: it replaces this dataplane's turns; runs are merged with what others said."""
    dataplane = dataplane_of(d, e.dataplane)
    listed = {memory.turn: memory for memory in e.turns}
    same_boot = dataplane.boot == e.boot
    for id_ in turns_of(d, dataplane.name):
        turn = d.turns[id_]
        memory = listed.get(id_) if same_boot else None
        if turn.phase is not TurnPhase.IN_FLIGHT:
            _drop(d, turn)  # asked for again, with its old arrival, if its client is still there
        elif memory is None or memory.attempt != turn.attempt or memory.replica != turn.replica:
            end(d, turn, "unlisted")
    dataplane = dataplane_of(d, e.dataplane)
    unusable = dataplane.unusable if same_boot else ()
    put_dataplane(
        d,
        replace(
            dataplane,
            session=e.session,
            boot=e.boot,
            connected=True,
            suspects=(),
            unusable=unusable,
            listed=frozenset(listed),
            listed_at=d.now,
        ),
    )
    d.resyncing = Resyncing(e)
    resync_on(d, d.settings.records_per_step_max)


def resync_on(d: Draft, records_max: float) -> None:
    """Absorb about so many of the runs and ids of a Hello; with the last of them also its turns, and what follows from all of it."""
    resyncing = d.resyncing
    if resyncing is None:
        return
    e, merged, records = resyncing.hello, resyncing.runs_merged, 0
    while merged < len(e.runs) and records < records_max:
        run = e.runs[merged]
        merged += 1
        records += 1 + len(run.tool_calls)
        _merge_run(d, e.dataplane, run)
    if merged < len(e.runs):
        d.resyncing = replace(resyncing, runs_merged=merged)
        return
    d.resyncing = None
    for turn in e.turns:
        _count_turn(d, e.dataplane, turn)
    open_gate(d)


def open_gate(d: Draft) -> None:
    """Placing begins when all expected dataplanes are here, or the grace is over."""
    expected = d.settings.dataplanes_expected
    here = bool(expected) and all(name in d.dataplanes and d.dataplanes[name].session for name in expected)
    over = d.now >= d.started_at + d.settings.start_grace_seconds
    if not d.open and (here or over):
        identify_all(d)
        d.open = True
        replicas_changed(d)


def _merge_run(d: Draft, dataplane: str, memory: RunMemory) -> None:
    """Where several dataplanes remember a run, the higher turn_seq wins, lane by lane; but a place that led to no answer wins nothing."""
    key = run_key(memory.principal, memory.run)
    run = d.runs.get(key)
    placed = memory.placed or memory.seen
    if told_before(run, placed, ended_at(d, key)) or (run is not None and run.ended):
        d.decisions.append(EndRun(memory.run, memory.principal, dataplane))
        return
    if run is None:
        run = Run(key, memory.run, memory.principal, memory.caller, memory.turn_class, memory.parent, seen=memory.seen, asked=placed)
    elif memory.turn_seq > run.turn_seq:
        run = replace(
            run, caller=memory.caller, turn_class=memory.turn_class, parent=memory.parent or run.parent, asked=max(run.asked, placed)
        )
    run = replace(run, turn_seq=max(run.turn_seq, memory.turn_seq), seen=max(run.seen, memory.seen))
    for lane in memory.lanes:
        before = run.lanes
        run = replace(run, lanes=with_lane(run, _merge_lane(d, dataplane, run, memory, lane)))
        if run.held:
            run = put_run(d, run)
            requeue_lanes(d, before, run)
    if memory.fell:
        known = d.run_quotas.get(key, RunQuota())
        d.run_quotas = d.run_quotas.set(key, replace(known, fell=tuple(sorted((dict(memory.fell) | dict(known.fell)).items()))))
    run = recall_ids(d, run, memory)
    for response in memory.responses:
        run = remember_response(d, run, response.id, response.replica, response.seen)
    put_run(d, run)


def _merge_lane(d: Draft, dataplane: str, run: Run, memory: RunMemory, told: LaneMemory) -> Lane:
    lane = lane_of(run, told.model) or Lane(told.model)
    if told.home in d.replicas and told.ended < d.replicas[told.home].since:
        told = replace(told, home="")
    if told.turn_seq < lane.turn_seq:
        if lane.in_flight or told.turn_seq < lane.answered:
            return lane
        # No newer turn was answered: their places never reached this dataplane, or came to nothing. It is as it was before.
        lane = replace(move_home(d, lane, told.home), turn_seq=told.turn_seq)
    elif told.turn_seq > lane.turn_seq or not lane.home:
        for branch in lane.branches:
            drop_branch(d, run, lane, branch)
        lane = move_home(d, replace(lane, branches=()), told.home)
        lane = replace(lane, turn_seq=told.turn_seq, answered=told.turn_seq, ended=told.ended)
    return _merge_branches(d, dataplane, run, memory, lane, told)


def _merge_branches(d: Draft, dataplane: str, run: Run, memory: RunMemory, lane: Lane, told: LaneMemory) -> Lane:
    """The lane with the branches that it lacks: the report of an answer may have been lost with the last session."""
    seconds = d.policy.reserve(d, memory.turn_class, lane.home)
    digests = {seen.id: seen.head_digest for seen in memory.tool_calls}
    for number, paused in enumerate(told.paused):
        if any(branch.ids == paused.ids or not set(branch.ids).isdisjoint(paused.ids) for branch in lane.branches):
            continue
        until = paused.since + seconds
        digest = next((digests[id_] for id_ in paused.ids if id_ in digests), b"")
        name = f"resync-{told.turn_seq}-{paused.ids[0] if paused.ids else number}"
        lane = add_branch(d, run, lane, Branch(name, paused.ids, paused.since, digest, until > d.now, until, dataplane))
    return lane


def _count_turn(d: Draft, dataplane: str, memory: TurnMemory) -> None:
    """A turn that this dataplane has in flight."""
    known = d.turns.get(memory.turn)
    if known is not None and (known.phase is TurnPhase.IN_FLIGHT or known.dataplane != dataplane):
        return
    if known is not None:
        _drop(d, known)
    key = run_key(memory.principal, memory.run) if memory.kind is Kind.GENERATIVE else ""
    if key and key not in d.runs:
        put_run(d, _run_of(d, key, memory))
    turn = Turn(
        id=memory.turn, attempt=memory.attempt, dataplane=dataplane, run=key, run_id=memory.run, model=memory.model, kind=memory.kind.value,
        turn_class=memory.turn_class, caller=memory.caller, principal=memory.principal, flow=run_key(memory.principal, memory.caller),
        arrived=memory.placed, phase=TurnPhase.IN_FLIGHT, replica=memory.replica, turn_seq=memory.turn_seq, placed=memory.placed,
        expires=max(memory.placed, d.now) + d.settings.turn_timeout_seconds,
        head_digest=memory.head_digest, stated=True, hold_until=memory.placed + (d.settings.hold_seconds_max or -memory.placed),
        quota=TurnQuota(fence=memory.fence) if memory.fence else None,
    )  # fmt: skip
    holder = dataplane_of(d, dataplane)
    put_dataplane(d, replace(holder, turns_count=holder.turns_count + 1))
    count_caller(d, turn.flow, in_flight=1)
    count_in_flight(d, turn, counted_now=False)


def _drop(d: Draft, turn: Turn) -> None:
    """A held turn whose dataplane is gone, or tells anew what it has."""
    drop_waiting(d, turn)
    forget_unused(d, turn.run)


def _run_of(d: Draft, key: str, memory: TurnMemory) -> Run:
    """A run of which only this turn is known; it may have been ended since the turn began."""
    over = memory.placed <= ended_at(d, key)
    at = memory.placed
    return Run(key, memory.run, memory.principal, memory.caller, memory.turn_class, seen=at, asked=at, ended=over)


def lost(d: Draft, e: DataplaneLost) -> None:
    """Its held turns are dropped; what it has in flight stays counted for a while, since the engine still works on it."""
    dataplane = d.dataplanes.get(e.dataplane)
    if dataplane is None or dataplane.session != e.session or not dataplane.connected:
        return
    for id_ in turns_of(d, dataplane.name):
        turn = d.turns[id_]
        if turn.phase is not TurnPhase.IN_FLIGHT:
            _drop(d, turn)
    put_dataplane(d, replace(d.dataplanes[e.dataplane], connected=False))
    arm(d, d.now + d.settings.dataplane_lost_seconds, Timer.LOST, e.dataplane, e.session)


def alive(d: Draft, e: DataplaneAlive) -> None:
    for name in e.delivering:
        replica = d.replicas.get(name)
        if replica is not None:
            put_replica(d, replace(replica, delivered_at=d.now))
    if e.turns is not None:
        put_dataplane(d, replace(dataplane_of(d, e.dataplane), listed=frozenset(e.turns), listed_at=d.now))


def suspected(d: Draft, e: ReplicaSuspected) -> None:
    """Probe now; until that answers this dataplane's turns avoid the replica."""
    replica = d.replicas.get(e.replica)
    if replica is None or replica.removed:
        return
    d.decisions.append(Probe(e.replica))
    dataplane = dataplane_of(d, e.dataplane)
    if e.replica not in dataplane.suspects:
        _avoid(d, replace(dataplane, suspects=tuple(sorted((*dataplane.suspects, e.replica)))))


def unusable(d: Draft, e: ReplicaUnusable) -> None:
    dataplane = dataplane_of(d, e.dataplane)
    if e.replica in d.urls and e.replica not in dataplane.unusable:  # urls has every name that was ever configured
        _avoid(d, replace(dataplane, unusable=tuple(sorted((*dataplane.unusable, e.replica)))))


def trusted(d: Draft, replica: str) -> None:
    """A probe has answered: no dataplane suspects this replica any more."""
    for name in d.dataplane_names:
        dataplane = d.dataplanes[name]
        if replica in dataplane.suspects:
            _avoid(d, replace(dataplane, suspects=tuple(other for other in dataplane.suspects if other != replica)))


def _avoid(d: Draft, dataplane: Dataplane) -> None:
    """Which replicas this dataplane's turns avoid has changed."""
    put_dataplane(d, dataplane)
    requeue(d, [d.turns[id_] for id_ in turns_of(d, dataplane.name)])


def lost_for_good(d: Draft, name: str, session: str) -> None:
    """The lost dataplane did not come back in time: its turns in flight expire."""
    dataplane = d.dataplanes.get(name)
    if dataplane is None or dataplane.session != session or dataplane.connected:
        return
    for id_ in turns_of(d, dataplane.name):
        if d.expiries_left <= 0:
            arm(d, d.now, Timer.LOST, name, session)
            return
        d.expiries_left -= 1
        turn = d.turns[id_]
        if turn.phase is TurnPhase.IN_FLIGHT:
            expired(d, turn)
        else:
            _drop(d, turn)
    d.dataplanes = d.dataplanes.delete(name)
    d.dataplane_names = d.dataplane_names.remove(name)
