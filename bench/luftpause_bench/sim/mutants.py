"""In which ways is the scheduler broken, to see whether the simulation catches it?

A mutant takes the place of functions of the core wherever the core has them, for as long as a world lives. The checks keep the right ones.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Final, cast

from msgspec import Struct

from luftpause.scheduler.core.decide import ABSORB
from luftpause_bench.sim import guard_mutations, mutations
from luftpause_bench.sim.mutations import Change

CORE: Final = "luftpause.scheduler.core"


class Mutant(Struct, frozen=True):
    """`changes` are made together. `seeds`: of which one is known to catch it. `guarded`: only worlds with the guard policy can."""

    name: str
    what: str
    changes: Callable[[], tuple[Change, ...]]
    seeds: tuple[int, ...] = ()
    guarded: bool = False


@contextmanager
def alive(mutant: Mutant) -> Generator[None]:
    """The core is broken like this in the meantime."""
    with ExitStack() as undo:
        for owner, name, instead in mutant.changes():
            right = getattr(owner, name)
            places = [owner, *(module for path, module in sys.modules.items() if path.startswith(CORE) and module is not owner)]
            for place in places:
                if getattr(place, name, None) is right:
                    setattr(place, name, instead)
                    undo.callback(setattr, place, name, right)
            for event in [event for event, change in ABSORB.items() if change is right]:
                undo.callback(ABSORB.__setitem__, event, ABSORB[event])
                ABSORB[event] = cast("Callable[..., None]", instead)
        yield


MUTANTS: Final = (
    Mutant("no room for the paused", "batch is placed where a place is kept for a paused run", mutations.no_room_for_the_paused, (0,)),
    Mutant("nothing is reserved", "a paused run holds no place", mutations.nothing_is_reserved, (0,)),
    Mutant("reserve never ends", "a paused run holds its place for longer than reserve_seconds_max", mutations.reserve_never_ends, (0,)),
    Mutant("batch counts as interactive", "admission does not look at the class", mutations.batch_counts_as_interactive, (0,)),
    Mutant("no cap", "turns in flight are not capped", mutations.no_cap, (0,)),
    Mutant("cap lifted at once", "the first report without a queue lifts the cap", mutations.cap_lifted_at_once, (0,)),
    Mutant("no burst limit", "between two reports any number is placed", mutations.no_burst_limit, (0,)),
    Mutant("busy is forgotten", "an engine that said it is full is asked again at once", mutations.busy_is_forgotten, (0,)),
    Mutant("batch first", "held batch turns go before interactive ones", mutations.batch_first, (0,)),
    Mutant("last come, first served", "within a caller the newest turn goes first", mutations.last_come_first_served, (2,)),
    Mutant("busiest caller first", "the caller with most turns in flight goes first", mutations.busiest_caller_first, (0,)),
    Mutant("arrival not inherited", "a retry starts at the tail", mutations.arrival_not_inherited, (27,)),
    Mutant("no stickiness", "a paused or generating run goes anywhere", mutations.no_stickiness, (0,)),
    Mutant("pause forgotten", "an answer that ends in tool calls leaves its run idle", mutations.a_pause_is_forgotten, (0,)),
    Mutant("id alone joins", "call_0 joins runs whatever their heads", mutations.an_id_alone_joins, (4,)),
    Mutant("ids not recalled", "after a restart agents without a header are strangers", mutations.ids_are_not_recalled, (4,)),
    Mutant("home not recalled", "after a restart runs have no home", mutations.home_not_recalled, (4,)),
    Mutant("failure frees nothing", "a turn that failed keeps its place", mutations.no_place_freed_on_failure, (1,)),
    Mutant("expiry frees nothing", "a turn that expired keeps its place", mutations.expired_but_still_counted, (8,)),
    Mutant("abandoned but held", "a turn whose client left stays in its queue", mutations.abandoned_but_still_held, (0,)),
    Mutant(
        "given back in a circle",
        "a turn goes again to a replica that it could not reach",
        mutations.given_back_to_where_it_came_from,
        (13,),
    ),
    Mutant("suspicion ignored", "a replica that a dataplane could not reach gets its turns", mutations.suspicion_is_ignored, (36,)),
    Mutant("one miss is death", "one missed probe makes a replica unhealthy", mutations.one_miss_is_death, (13,)),
    Mutant("no replica for ever", "no_replica: refuse never refuses", mutations.no_replica_for_ever, (155,)),
    Mutant("unhealthy gets turns", "health is not looked at", mutations.a_place_on_the_unhealthy, (0,)),
    Mutant("passes go anywhere", "dataplanes send passes unasked also where they are capped", mutations.passes_go_anywhere, (5,)),
    Mutant("passes have a choice", "they go unasked where two replicas serve their model", mutations.passes_have_a_choice, (11,)),
    Mutant("sent passes don't count", "the scheduler does not count what was sent unasked", mutations.sent_passes_are_not_counted, (3,)),
    Mutant("lost frees at once", "a dataplane that is lost frees its turns while engines work on them", mutations.lost_frees_at_once, (2,)),
    Mutant("lost for ever", "the turns of a dataplane that is lost are never freed", mutations.lost_for_ever, (9,)),
    Mutant("resync only adds", "a Hello does not replace what was known of its dataplane", mutations.resync_only_adds, (5,)),
    Mutant("end is told to nobody", "other dataplanes do not hear that a run was ended", mutations.nobody_else_is_told, (3,)),
    Mutant("start waits for nobody", "placing begins before the dataplanes are here", mutations.start_waits_for_nobody, (1,)),
    Mutant("runs are immortal", "idle runs are never forgotten", mutations.runs_are_immortal, (0,)),
    Mutant("batch gets no share", "batch_min_share is ignored", mutations.batch_gets_no_share, (47,)),
    Mutant("holds have no end", "hold_seconds_max is ignored", mutations.holds_have_no_end, (18,)),
    Mutant("any number is held", "held_turns_max and held_turns_per_caller_max are ignored", mutations.any_number_is_held, (2,)),
    Mutant("a star fits nothing", "models with * in their name are served by nobody", mutations.one_star_fits_nothing, (16,)),
    Mutant("guard hears of no end", "turns in flight stay in its accounts", guard_mutations.ends_are_not_heard, (1_000_000,), guarded=True),
    Mutant("guard waits for ever", "held turns stay in its accounts", guard_mutations.waits_for_ever, (1_000_001,), guarded=True),
    Mutant("guard's ranks are stale", "resident runs come and go, ranks stay", guard_mutations.ranks_are_stale, (1_000_011,), guarded=True),
    Mutant("guard moves up once", "who waits moves up one run time at most", guard_mutations.moves_up_once, (1_000_002,), guarded=True),
    Mutant("guard leaves engines idle", "an idle engine waits", guard_mutations.an_idle_engine_takes_nobody, (1_000_085,), guarded=True),
)
