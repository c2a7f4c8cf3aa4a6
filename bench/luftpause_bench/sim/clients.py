"""Who sends turns, how is an agent recognised, and when does it lose patience?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.dataplane.turns import Ask, Kind, Placement, TurnClass
from luftpause_bench.sim.turns import End, Exchange, Work
from luftpause_fakes.engine_model import Segment

if TYPE_CHECKING:
    from luftpause_bench.sim.dataplanes import Dataplane
    from luftpause_bench.sim.town import Town

STATED, IDS, WEAK_IDS, RESPONSE = "stated", "ids", "weak ids", "response"
MODES: Final = (STATED, IDS, IDS, WEAK_IDS, RESPONSE)
REDIAL_SECONDS: Final = (0.2, 2.0)
TRIES_MAX: Final = 8
DOUBT_SECONDS: Final = 30.0  # so long after a fault of an engine the scheduler may still think it unhealthy, however long it was paused


class Character(Struct, frozen=True):
    """`turns` until its final answer. `leaves`: how likely it closes a connection; `children`: sub-agents."""

    mode: str
    model: str
    turn_class: TurnClass
    caller: str
    turns: int
    leaves: float = 0.0
    children: int = 0
    roams: bool = False  # any dataplane will do, each time anew
    kind: Kind = Kind.GENERATIVE
    principal: str = ""
    seeks: bool = False  # it asks where its last response is stored


class Answer(Struct, frozen=True):
    """What it knows of its last turn that was answered."""

    turn: str
    run: str
    replica: str
    boot: str
    ids: tuple[str, ...]
    response: str


class Agent:
    """One conversation: a turn, tools, the next turn. `over` when it has its answer or has given up."""

    def __init__(self, town: "Town", character: Character, *, run: str = "", parent: str = "", context: tuple[Segment, ...] = ()) -> None:
        self.town = town
        self.world = town.world
        self.character = character
        self.name = self.world.name("agent")
        self.run = run or (self.world.name("own-run") if character.mode == STATED else "")
        self.over = False
        self.last: Answer | None = None
        self.exchange: Exchange | None = None
        self._home = self.world.chance.randrange(len(town.places))  # its dataplane
        self._parent = parent
        self._prompt = (*context, self._segment(30, 300))
        self._done = 0
        self._tries = 0
        self._twice = False  # a turn was begun twice: ids like call_0 may belong to the run of either try, and a new run is right
        self._calls = 0
        self._dataplane: Dataplane
        self._asked: Ask
        self._work: Work
        self._placement: Placement | None = None

    def _segment(self, low: int, high: int) -> Segment:
        return Segment(int(self.world.name("")), self.world.chance.randint(low, high))

    # ---- a turn

    def begin(self) -> None:
        """Ask for the next turn."""
        character, last = self.character, self.last
        self._done += 1
        final = self._done >= character.turns
        self._calls = 0 if final else self.world.chance.choice((1, 1, 2))
        self._asked = Ask(
            turn="",
            fresh_run="",
            model=character.model,
            turn_class=character.turn_class,
            caller=character.caller,
            run=self.run if character.mode == STATED or self.run else "",
            kind=character.kind,
            tool_call_ids=last.ids[::-1] if last else (),
            head_digest=self.name.encode(),
            previous_response=last.response if last else "",
            principal=character.principal,
            body_hash=self.world.name("body").encode(),
            parent=self._parent,
            body_bytes=4 * sum(segment.tokens for segment in self._prompt) if self._parent else 0,
        )
        self._tries = 0
        self._seek()
        self._send()

    def _seek(self) -> None:
        """Where is its last response stored? Nowhere else than where it was answered, and that is known unless something went wrong."""
        last, dataplane = self.last, self.town.places[self._home]
        if not self.character.seeks or last is None or not last.response or dataplane is None or dataplane.dead:
            return

        def found(replica: str) -> None:
            self.world.counts["located" if replica else "not located"] += 1
            right = replica == last.replica or (not replica and not self.town.calm)
            self.world.promise(right, lambda: f"{last.response} is stored at {last.replica}, and was located at {replica or 'none'}")

        dataplane.do(lambda: None if dataplane.dead else _ask_where(dataplane, last.response, self.character.principal, found))

    def _send(self) -> None:
        self._tries += 1
        self._twice = self._twice or self._tries > 1
        if self._tries > TRIES_MAX:
            self._stop()
            return
        where = self.world.chance.randrange(len(self.town.places)) if self.character.roams else self._home
        dataplane = self.town.places[where]
        if dataplane is None or dataplane.dead:
            self.world.at(self.world.between(*REDIAL_SECONDS), self._send)
            return
        self._dataplane = dataplane
        self._placement = None
        dataplane.knocking[self.name] = self._hang_up
        dataplane.do(lambda: self._arrive(dataplane))

    def _hang_up(self) -> None:
        self.world.at(self.world.between(*REDIAL_SECONDS), self._send)

    def _arrive(self, dataplane: "Dataplane") -> None:
        del dataplane.knocking[self.name]
        self._work = self._new_work()
        ask = replace(self._asked, turn=self.world.name("turn"), fresh_run=self.world.name("run"))
        exchange = self.exchange = Exchange(dataplane, ask, self._work, placed=self._placed, ended=self._ended)
        if self.world.likely(self.character.leaves):
            self.world.at(self.world.chance.choice((0.0, 0.001, 0.0015, 0.02, 0.2, 1.0, 3.0)), exchange.leave)

    def _new_work(self) -> Work:
        """Each time that an engine answers the calls have ids of their own, unless it counts them in each answer."""
        weak = self.character.mode == WEAK_IDS
        ids = tuple(f"call_{number}" if weak else self.world.name("toolu_01AbCdEfGhIjKlM") for number in range(self._calls))
        response = self.world.name("resp_") if self.character.mode == RESPONSE else ""
        return Work(self._prompt, (self._segment(2, 14),), ids, response)

    def _placed(self, placement: Placement) -> None:
        self._placement = placement
        self.town.placed_runs[placement.run, self.character.principal] = self.world.now
        self._recognised(placement)
        if self.exchange is not None and self.world.likely(self.character.leaves / 4):
            self.world.at(0.0005, self.exchange.leave)  # before the engine has it

    def _ended(self, end: End) -> None:
        exchange, self.exchange = self.exchange, None
        match end.how:
            case "served":
                self._served(exchange.ask.turn if exchange is not None else "")
            case "broken":
                self._hang_up()
            case "left" if self.world.likely(0.5):  # and comes again, as behind a load balancer that cuts silent connections
                self.world.at(self.world.between(0.0, 1.0), self._send)
            case "refused":
                self.town.refused(self, exchange, end)
                self._stop()
            case _:
                self._stop()

    def _served(self, turn: str) -> None:
        placement = self._placement
        assert placement is not None
        self.last = Answer(turn, placement.run, placement.replica.name, self._dataplane.boot, self._work.ids, self._work.response)
        self._prompt = (*self._prompt, *self._work.answer, self._segment(5, 120))
        if not self._work.ids:
            self._stop()
            return
        if self.character.children and self._done == 1:
            self._spawn()
        self.world.at(self.world.chance.choice((0.0, 0.01, 0.1, 0.5, 2.0, 6.0)), self.begin)

    def _spawn(self) -> None:
        """
        Sub-agents: the first speaks under the session's id, with a prompt of its own; others are runs of their own, and begin with this
        one's context. Some use another model.
        """
        assert self.last is not None
        for number in range(self.character.children):
            model = self.world.chance.choice((self.character.model, *self.town.models))
            character = Character(STATED, model, self.character.turn_class, self.character.caller, self.world.chance.randint(1, 3))
            character = replace(character, principal=self.character.principal)
            if number:
                agent = Agent(self.town, character, parent=self.last.run, context=self._prompt)
            else:
                agent = Agent(self.town, character, run=self.last.run)
            child = self.town.admit(agent)
            child._home = self._home
            child.begin()

    def _stop(self) -> None:
        self.over = True

    # ---- what it may expect

    def _recognised(self, placement: Placement) -> None:
        """It is the same run as before, and goes where its prefix is, unless something happened that excuses it."""
        last = self.last
        if self.character.kind is not Kind.GENERATIVE:
            return
        if self.run:
            self.world.promise(placement.run == self.run, lambda: f"{self.name} states run {self.run} and got {placement.run}")
        self._twice = self._twice or (last is not None and self._dataplane.boot != last.boot)
        if self.character.mode == WEAK_IDS and self._twice:
            return
        if (
            last is None
            or self._dataplane.boot != last.boot
            or (last.run, self.character.principal) in self.town.ended_runs
            or self.character.roams
        ):
            return
        if last.turn in self.town.watcher.expired:  # clocks jumped further than a turn may take: then its ids came too late
            return
        self.world.promise(
            placement.run == last.run, lambda: f"{self.name} ({self.character.mode}) was {last.run} and is taken for {placement.run}"
        )
        engine = self.town.engines[last.replica]
        if self._tries > 1:  # the try before may have been answered in part: then the run is idle, and may move
            return
        jumped = self.world.jumped_at if engine.faulty_at > 0.0 else engine.faulty_at  # it may have been down all that time
        if self.town.configs or self.world.now - max(engine.faulty_at, jumped) < DOUBT_SECONDS:
            return
        self.world.counts["came back to its home"] += 1
        self.world.promise(
            placement.replica.name == last.replica,
            lambda: (
                f"{self.name} ({self.character.mode}, run {last.run}) was paused at {last.replica} and went to {placement.replica.name}"
            ),
        )


def _ask_where(dataplane: "Dataplane", response: str, principal: str, found: Callable[[str], None]) -> None:
    dataplane.ledger.locate(response, principal, found)
