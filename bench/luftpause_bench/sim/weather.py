"""What does a seed decide: which settings, which engines, who comes, and what goes wrong?"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from luftpause.dataplane.turns import Kind, TurnClass
from luftpause.scheduler.core.events import Kind as ReplicaKind
from luftpause.scheduler.core.events import ReplicaSpec
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.clients import MODES, Agent, Character
from luftpause_bench.sim.engines import EngineProcess, Metrics
from luftpause_bench.sim.town import DATAPLANES, KEY, Made, Town
from luftpause_bench.sim.world import World
from luftpause_fakes.engine_model import EngineParams

JUDGE: Final = "judge"  # a classifier's model
BURSTS: Final = ((1_000, 0.03), (150, 0.05))  # turns at once, and how likely that is
CALM_SHARE: Final = 0.1  # worlds without any fault
GUARDED_FROM: Final = 1_000_000  # worlds from this seed on have the guard policy, those before it `original`
GUARDED_PROBE_SECONDS: Final = 0.75  # a queue counts at once
TURN_TIMEOUT_SECONDS: Final = 50.0  # short enough to see turns expire whose end was never reported


# ---- the place --------------------------------------------------------------------------------------------------


def settings(world: World) -> Settings:
    choice = world.chance.choice
    guarded = world.seed >= GUARDED_FROM
    return Settings(
        policy="guard" if guarded else "original",
        probe_seconds=GUARDED_PROBE_SECONDS if guarded else 2.0,
        dataplanes_expected=choice(((), DATAPLANES)),
        start_grace_seconds=choice((3.0, 0.5)),
        load_unknown_cap=choice((16, 2)),
        burst_turns_max=choice((None, None, 2, 0)),
        cap_release=choice(("stepwise", "stepwise", "at_once")),
        reserve_seconds_max=choice((120.0, 3.0, 0.0)),
        turn_timeout_seconds=TURN_TIMEOUT_SECONDS,
        run_idle_seconds=choice((1800.0, 120.0)),
        no_replica=choice(("hold", "hold", "refuse")),
        no_replica_seconds=choice((10.0, 2.0)),
        batch_min_share=choice((0.0, 0.0, 0.0, 0.25)),
        hold_seconds_max=choice((None, None, None, 4.0)),
        held_turns_max=choice((None, None, None, 12)),
        held_turns_per_caller_max=choice((None, None, None, 4)),
        places_per_step_max=choice((64, 64, 3)),
        expiries_per_step_max=choice((1000, 1000, 5)),
    )


def replicas(world: World) -> dict[ReplicaSpec, Made]:
    """Two or three engines; two models of which the first one serves both; the third may be hosted."""
    chance = world.chance
    small = ReplicaSpec("one", "http://one:8000", models=("big", "small")), _params(world), ("big", "small")
    other = ReplicaSpec("two", "http://two:8000", models=chance.choice((("big",), None, ("b*",)))), _params(world), ("big",)
    third = ReplicaSpec("three", "http://three:8000", models=("big", "small")), _params(world), ("big", "small")
    if world.likely(0.4):
        hosted = ReplicaSpec("three", "https://three", models=("big",), capped=False, max_in_flight=3, api_key_env=KEY)
        third = hosted, _params(world), ("big",)
    made = (small, other, third)[: chance.choice((2, 3, 3))]
    if world.likely(0.3):
        most = 2 if world.seed % 4 == 1 else None  # by the seed alone: all else in the world stays as it is
        judge = ReplicaSpec("judge", "http://judge:8000", models=(JUDGE,), kind=ReplicaKind.CLASSIFIER, max_in_flight=most)
        made += ((judge, _params(world), (JUDGE,)),)
    return {spec: (params, models) for spec, params, models in made}


def spares(world: World) -> dict[ReplicaSpec, Made]:
    """Engines that a change of the configuration may add."""
    spec = ReplicaSpec("four", "http://four:8000", models=world.chance.choice((None, ("*",))))
    return {spec: (_params(world), ("big", "small"))}


def _params(world: World) -> EngineParams:
    choice = world.chance.choice
    return EngineParams(
        decode_step_seconds=choice((0.03, 0.08)),
        chunk_tokens=512,
        running_max=choice((None, 16, 4)),
        waiting_max=choice((None, 8, 1)),
        kv_tokens=choice((2_500, 6_000, 16_000)),
    )


SMALL_SETTINGS: Final = Settings(dataplanes_expected=DATAPLANES, start_grace_seconds=0.5, turn_timeout_seconds=TURN_TIMEOUT_SECONDS)


def small_replicas() -> dict[ReplicaSpec, Made]:
    """Two engines that are soon full."""
    params = EngineParams(decode_step_seconds=0.03, chunk_tokens=512, running_max=2, kv_tokens=6_000)
    return {ReplicaSpec(name, f"http://{name}:8000", models=("big",)): (params, ("big",)) for name in ("one", "two")}


def few_people(world: World, town: Town) -> None:
    """One agent for each way of being recognised, of both classes; one leaves its connection now and then."""
    for number, mode in enumerate(MODES):
        turn_class = (TurnClass.INTERACTIVE, TurnClass.BATCH)[number % 2]
        children = 1 if number == 0 else 0
        character = Character(mode, "big", turn_class, "ann", 3, leaves=0.2 * (number == 1), children=children, roams=number == 2)
        _comes(world, town, character, world.between(0.6, 1.0))


# ---- the people -------------------------------------------------------------------------------------------------


def people(world: World, town: Town, seconds: float) -> None:
    """Agents that begin at some time; callers differ in how many they send."""
    chance = world.chance
    leaves = chance.choice((0.0, 0.05, 0.25))
    for _ in range(chance.choice((8, 20, 40))):
        roams = world.likely(0.15)
        character = Character(
            mode=chance.choice(MODES),
            model=chance.choice(town.models),
            turn_class=chance.choice((TurnClass.INTERACTIVE, TurnClass.BATCH)),
            caller=chance.choice(("ann", "bob", "bob", "bob", "cyd")),
            turns=chance.randint(1, 5),
            leaves=leaves,
            children=0 if roams else chance.choice((0, 0, 0, 2)),  # their lane is theirs: who roams may not reach its home
            roams=roams,
            principal=chance.choice(("", "", "", "acme")),
            seeks=world.likely(0.3),
        )
        if world.likely(0.05):
            character = Character("ids", town.models[0], character.turn_class, character.caller, 1, kind=Kind.EMBEDDING)
        if JUDGE in town.served and world.likely(0.2):
            character = Character("ids", JUDGE, character.turn_class, character.caller, 1, kind=Kind.CLASSIFIER)
        _comes(world, town, character, world.between(0.0, seconds))
    if leaves:
        town.calm = False
    for turns, probability in BURSTS:
        if world.likely(probability):
            _burst(world, town, turns, leaves / 5, world.between(0.0, seconds))


def _burst(world: World, town: Town, turns: int, leaves: float, at: float) -> None:
    world.counts[f"fault: burst of {turns}"] += 1
    for number in range(turns):
        turn_class = (TurnClass.INTERACTIVE, TurnClass.BATCH)[number % 2]
        _comes(world, town, Character("ids", "big", turn_class, f"caller{number % 20}", 1, leaves=leaves), at + number * 1e-4)


def _comes(world: World, town: Town, character: Character, seconds: float) -> None:
    world.at(seconds, lambda: town.admit(Agent(town, character)).begin())


# ---- what goes wrong --------------------------------------------------------------------------------------------


def faults(world: World, town: Town, seconds: float) -> None:
    """A few kinds of fault, each a few times; then `heal` makes an end of all."""
    if world.likely(CALM_SHARE):
        return
    town.calm = False
    kinds = world.chance.sample(sorted(FAULTS), world.chance.choice((1, 2, 4, 7)))
    for kind in kinds:
        for _ in range(world.chance.choice((1, 2, 4))):
            world.at(world.between(0.0, seconds), lambda kind=kind: _goes_wrong(world, town, kind))


def _goes_wrong(world: World, town: Town, kind: str) -> None:
    world.counts[f"fault: {kind}"] += 1
    world.note("fault", kind)
    FAULTS[kind](world, town)


def heal(town: Town) -> None:
    """From now on nothing goes wrong any more."""
    for engine in town.engines.values():
        engine.heal()
    town.start_scheduler()
    for number in range(len(DATAPLANES)):
        town.start_dataplane(number)
    if town.configs:
        town.configure(town.specs)
    for dataplane in town.places:
        if dataplane is not None:
            dataplane.faulty_finishes.clear()
    if town.scheduler is not None:
        town.scheduler.dies_after = None


def _link_breaks(world: World, town: Town) -> None:
    if town.links:
        world.chance.choice(town.links).break_off(world.chance.choice((0.5, 0.5, 8.0)))


def _session_is_replaced(world: World, town: Town) -> None:
    """A dataplane gives its session up while facts of it are under way: they, and its loss, come after the next Hello."""
    dataplane = world.chance.choice(town.places)
    if dataplane is not None and dataplane.stream is not None:
        dataplane.stream.link.up.stall(world.chance.choice((1.5, 3.0, 7.0)))
        dataplane.do(lambda: dataplane.stream.end() if dataplane.stream is not None else None)


def _clocks_jump(world: World, town: Town) -> None:
    del town
    world.jump(world.chance.choice((2.0, 10.0, 25.0)))  # four of them leave an agent its run


def _link_goes_dumb(world: World, town: Town) -> None:
    if town.links:
        up = world.likely(0.7)
        world.chance.choice(town.links).go_dumb(up=up, down=not up or world.likely(0.5))


def _link_stalls(world: World, town: Town) -> None:
    if town.links:
        world.chance.choice(town.links).stall(world.chance.choice((0.5, 3.0, 4.5, 8.0)))


def _scheduler_restarts(world: World, town: Town) -> None:
    town.stop_scheduler(machine=world.likely(0.3))
    world.at(world.chance.choice((0.05, 0.5, 2.0, 6.0)), town.start_scheduler)


def _scheduler_dies_at_an_event(world: World, town: Town) -> None:
    """Right after an event, before what was decided has left."""
    scheduler = town.scheduler
    if scheduler is not None:
        scheduler.dies_after = sum(scheduler.host.events.values()) + world.chance.randrange(1, 60)
        world.at(8.0, town.start_scheduler)


def _scheduler_pauses(world: World, town: Town) -> None:
    if town.scheduler is not None:
        town.scheduler.pause(world.chance.choice((0.3, 3.0, 5.0, 10.0)))


def _dataplane_restarts(world: World, town: Town) -> None:
    number = world.chance.randrange(len(DATAPLANES))
    town.stop_dataplane(number, machine=world.likely(0.3))
    world.at(world.chance.choice((0.05, 1.0, 6.0, 16.0)), lambda: town.start_dataplane(number))


def _dataplane_pauses(world: World, town: Town) -> None:
    dataplane = world.chance.choice(town.places)
    if dataplane is not None:
        dataplane.pause(world.chance.choice((0.3, 3.0, 5.0, 10.0)))


def _engine(world: World, town: Town) -> EngineProcess:
    return town.engines[world.chance.choice(sorted(town.engines))]


def _engine_crashes(world: World, town: Town) -> None:
    engine = _engine(world, town)
    engine.crash()
    world.at(world.chance.choice((0.3, 3.0, 8.0)), engine.start)


def _all_engines_crash(world: World, town: Town) -> None:
    for engine in town.engines.values():
        engine.crash()
        world.at(world.chance.choice((5.0, 16.0)), engine.start)


def _engine_is_full(world: World, town: Town) -> None:
    """It serves others, too, and has no room for ours, for ever or for a while."""
    engine = _engine(world, town)
    engine.full = True
    if world.likely(0.5):
        world.at(9.0, lambda: setattr(engine, "full", False))


def _engine_hangs(world: World, town: Town) -> None:
    _engine(world, town).hang(world.chance.choice((0.5, 3.0, 9.0)))


def _health_is_slow(world: World, town: Town) -> None:
    _for_a_while(world, _engine(world, town), "slow")


def _health_is_missed(world: World, town: Town) -> None:
    _for_a_while(world, _engine(world, town), "missed")


def _for_a_while(world: World, engine: EngineProcess, health: str) -> None:
    engine.health = health
    world.at(world.chance.choice((2.0, 9.0)), lambda: setattr(engine, "health", "ok"))


def _metrics(kind: Metrics) -> Callable[[World, Town], None]:
    def fault(world: World, town: Town) -> None:
        _engine(world, town).metrics = kind

    return fault


def _finish(how: str) -> Callable[[World, Town], None]:
    def fault(world: World, town: Town) -> None:
        dataplane = world.chance.choice(town.places)
        if dataplane is not None:
            dataplane.faulty_finishes.append(how)

    return fault


def _run_is_ended(world: World, town: Town) -> None:
    """`DELETE /v1/runs/{id}`, by whoever knows the id."""
    dataplane = world.chance.choice(town.places)
    runs = sorted({(agent.last.run, agent.character.principal) for agent in town.agents if agent.last and not agent.over})
    if dataplane is not None and runs:
        run, principal = world.chance.choice(runs)
        town.ended_runs[run, principal] = world.now
        dataplane.do(lambda: dataplane.ledger.end_run(run, principal))


def _config_changes(world: World, town: Town) -> None:
    """A replica comes, goes, moves, gets another limit, or learns its models; sometimes all is as it was."""
    chance = world.chance
    number = chance.randrange(len(town.specs))
    spec = town.specs[number]
    changed = chance.choice((
        (),
        (replace(spec, max_in_flight=chance.choice((1, 4))),),
        (replace(spec, models=None),),
        (replace(spec, url=f"{spec.url}/elsewhere"),),
        (replace(spec, capped=not spec.capped),),
        (spec,),
    ))  # fmt: skip
    added = chance.choice(((), town.spares))
    town.configure((*town.specs[:number], *changed, *town.specs[number + 1 :], *added))


def _replica_leaves_and_comes_back(world: World, town: Town) -> None:
    number = world.chance.randrange(len(town.specs))
    town.configure((*town.specs[:number], *town.specs[number + 1 :]))
    world.at(world.chance.choice((0.0, 0.02, 2.0)), lambda: town.configure(town.specs))


FAULTS: Final[dict[str, Callable[[World, Town], None]]] = {
    "link breaks": _link_breaks,
    "session is replaced": _session_is_replaced,
    "clocks jump": _clocks_jump,
    "link goes dumb": _link_goes_dumb,
    "link stalls": _link_stalls,
    "scheduler restarts": _scheduler_restarts,
    "scheduler dies at an event": _scheduler_dies_at_an_event,
    "scheduler pauses": _scheduler_pauses,
    "dataplane restarts": _dataplane_restarts,
    "dataplane pauses": _dataplane_pauses,
    "engine crashes": _engine_crashes,
    "all engines crash": _all_engines_crash,
    "engine is full": _engine_is_full,
    "engine hangs": _engine_hangs,
    "health is slow": _health_is_slow,
    "health is missed": _health_is_missed,
    "metrics freeze": _metrics(Metrics.FROZEN),
    "metrics lie": _metrics(Metrics.LYING),
    "metrics go missing": _metrics(Metrics.MISSING),
    "finish is lost": _finish("lost"),
    "finish comes twice": _finish("twice"),
    "run is ended": _run_is_ended,
    "config changes": _config_changes,
    "replica leaves and comes back": _replica_leaves_and_comes_back,
}
