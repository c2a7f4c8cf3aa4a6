"""Do dataplane and scheduler agree about every turn, however facts, orders, outages and restarts interleave?"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from luftpause.dataplane import wire
from luftpause.dataplane.hello import Snapshot
from luftpause.dataplane.ledger import Ledger, Line
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.orders import absorb
from luftpause.dataplane.turns import Kind, Placement, Refusal, ReturnReason
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.support.scheduler_double import a_list_of
from tests.support.waiters import Recorder, an_ask

numbers = st.integers(min_value=0, max_value=10_000)


class ModelScheduler:
    """The scheduler's bookkeeping by the letter of the contract: who is held, who has a place."""

    def __init__(self, *, keeps_held: bool) -> None:
        self.keeps_held = keeps_held  # over a new Hello
        self.held: dict[str, int] = {}  # turn -> attempt
        self.in_flight: dict[str, tuple[int, str]] = {}  # turn -> (attempt, replica)
        self.seq = 0
        self.facts = 0
        self.asked_at: dict[str, int] = {}  # turn -> facts when it was last requested; those that a Hello listed were not
        self.doubted: dict[str, int] = {}  # replica -> facts when its dataplane last said that it took no turn

    def hello(self, turns: list[pb.TurnRecord]) -> None:
        self.doubted.clear()
        if not self.keeps_held:
            self.held.clear()
        self.in_flight = {turn.turn: (turn.attempt, turn.replica) for turn in turns}

    def absorb(self, fact: pb.Fact) -> pb.Order | None:
        kind = fact.WhichOneof("fact")
        self.facts += 1
        match kind:
            case "turn_requested":
                return self._requested(fact.turn_requested)
            case "turn_abandoned" | "turn_finished" | "turn_failed" | "turn_returned":
                end = getattr(fact, kind)
                if self.held.get(end.turn) == end.attempt:
                    del self.held[end.turn]
                elif self.in_flight.get(end.turn, (0, ""))[0] == end.attempt:
                    del self.in_flight[end.turn]
                    if kind == "turn_returned":
                        self.doubted[end.replica] = self.facts
                        self.held[end.turn] = end.attempt + 1
            case "replica_suspected":
                self.doubted[fact.replica_suspected.replica] = self.facts
            case "locate":
                return pb.Order(located=pb.Located(query=fact.locate.query, replica=fact.locate.response))
            case _:
                pass
        return None

    def _requested(self, request: pb.TurnRequested) -> pb.Order | None:
        self.asked_at[request.turn] = self.facts
        if request.sent_to:
            assert request.kind == pb.KIND_CLASSIFIER
            assert request.attempt == 1
            assert request.turn not in self.held.keys() | self.in_flight.keys(), "it went unasked, and was known"
            assert request.sent_to not in self.doubted, "it went unasked to where a turn has just come back from"
            self.in_flight[request.turn] = request.attempt, request.sent_to
            return None
        if self.in_flight.get(request.turn, (0, ""))[0] == request.attempt:
            assert self.keeps_held, "asked for although it has a place"
            return self.order(request.turn)
        self.held[request.turn] = request.attempt
        return pb.Order(held=pb.Held(turn=request.turn, attempt=request.attempt, run="r", reason="capped"))

    def place(self, turn: str, replica: str) -> pb.Order:
        if self.asked_at.get(turn, 0) > self.doubted.get(replica, self.facts):
            del self.doubted[replica]
        self.in_flight[turn] = (self.held.pop(turn), replica)
        return self.order(turn)

    def order(self, turn: str) -> pb.Order:
        attempt, replica = self.in_flight[turn]
        self.seq += 1
        return pb.Order(placed=pb.Placed(turn=turn, attempt=attempt, run=f"run_of_{turn}", replica=replica, turn_seq=self.seq))

    def refuse(self, turn: str) -> pb.Order:
        return pb.Order(refused=pb.Refused(turn=turn, attempt=self.held.pop(turn), run="r", status=404))


def an_announcement(*, unasked: bool) -> pb.Order:
    """Two generative replicas, and one classifier."""
    order = a_list_of("a", "b")
    order.replicas.replicas.add(
        name="j", url="http://j:1", models=["m"], kind=pb.KIND_CLASSIFIER, state="healthy", passes_unasked=unasked
    )  # fmt: skip
    return order


class Session(RuleBasedStateMachine):
    """Two queues stand for the stream; an outage loses what is in them."""

    @initialize(keeps_held=st.booleans())
    def begin(self, keeps_held: bool) -> None:
        self.now = 0.0
        self.up: list[pb.Fact] = []
        self.down: list[pb.Order] = []
        self.waiters: dict[str, Recorder] = {}
        self.alive: set[str] = set()  # turns whose client still waits or reads
        self.scheduler = ModelScheduler(keeps_held=keeps_held)
        self.memory = Memory(seconds=1800, runs_max=1000)
        self.ledger = Ledger(self.memory, lambda: self.now, words=wire, send=self.up.append, send_soon=self.up.append, environ={})
        self.snapshot: Snapshot | None = None
        self.expected: set[tuple[str, int]] = set()
        self.count = 0
        self.sent: list[pb.Order] = []  # in this session
        self.found: list[list[str]] = []  # the answers to each query
        self.ended = False
        for _ in range(5):
            self.ask()
        self.say_hello()
        self.be_welcomed()
        self.arrive(up=9, down=9)
        for turn, replica in (("t0", "a"), ("t1", "b"), ("t2", "unannounced"), ("t3", "a")):
            self.down.append(self.scheduler.place(turn, replica))
        self.arrive(up=0, down=9)
        self.down.append(self.scheduler.place("t4", "a"))  # one place is on its way

    def pick(self, names: list[str], number: int) -> str:
        return sorted(names)[number % len(names)]

    def placed_turns(self) -> list[str]:
        """Turns whose waiter holds a place of the current attempt."""
        return [turn for turn in self.alive if self.memory.in_flight.get(turn) and turn not in self.ledger._parked]

    # ---- the relay ------------------------------------------------------------------------------------------------

    @rule()
    def ask(self) -> None:
        turn = f"t{self.count}"
        self.count += 1
        self.waiters[turn] = Recorder()
        self.alive.add(turn)
        self.ledger.ask(an_ask(turn), self.waiters[turn])

    @rule()
    def ask_for_a_pass(self) -> None:
        turn = f"t{self.count}"
        self.count += 1
        self.waiters[turn] = Recorder()
        self.alive.add(turn)
        self.ledger.ask(an_ask(turn, kind=Kind.CLASSIFIER), self.waiters[turn])

    @rule()
    def suspect(self) -> None:
        self.ledger.suspect("j", "it went away")

    @precondition(lambda self: self.alive)
    @rule(number=numbers)
    def abandon(self, number: int) -> None:
        turn = self.pick(list(self.alive), number)
        self.alive.discard(turn)
        self.ledger.abandon(turn)

    @precondition(lambda self: self.placed_turns())
    @rule(number=numbers, how=st.sampled_from(["start", "token", "finish", "pause", "fail", "back", "busy"]))
    def report(self, number: int, how: str) -> None:
        turn = self.pick(self.placed_turns(), number)
        match how:
            case "start":
                self.ledger.started(turn)
            case "token":
                self.ledger.first_token(turn)
            case "back":
                self.ledger.give_back(turn, ReturnReason.UNREACHABLE)
            case "busy":
                self.ledger.give_back(turn, ReturnReason.BUSY)
            case "fail":
                self.alive.discard(turn)
                self.ledger.failed(turn, "engine_died")
            case _:
                self.alive.discard(turn)
                self.ledger.finished(turn, "stop", None, paused=how == "pause", tool_call_ids=(f"call_{turn}",))

    @rule()
    def end_run(self) -> None:
        """The run that held turns are told; without a session they are refused at once."""
        self.ledger.end_run("r", "")
        self.ended = True

    @precondition(lambda self: self.waiters)
    @rule(number=numbers)
    def be_told_that_a_run_ended(self, number: int) -> None:
        if self.ledger.line is Line.OPEN:
            self.down.append(pb.Order(run_forgotten=pb.RunForgotten(run=f"run_of_{self.pick(list(self.waiters), number)}")))

    @rule()
    def locate(self) -> None:
        found: list[str] = []
        self.found.append(found)
        self.ledger.locate(f"resp_{len(self.found)}", "", found.append)

    # ---- the stream -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ledger.line is Line.CLOSED)
    @rule()
    def say_hello(self) -> None:
        self.ledger.opening()
        self.snapshot = Snapshot(self.memory, self.now, part_bytes=400)
        self.expected = {(turn, record.attempt) for turn, record in self.memory.in_flight.items()}

    @precondition(lambda self: self.ledger.line is Line.OPENING)
    @rule()
    def be_welcomed(self) -> None:
        assert self.snapshot
        turns = [turn for part in self.snapshot.parts() for turn in part.turns]
        self.snapshot.close()
        assert {(turn.turn, turn.attempt) for turn in turns} == self.expected
        self.scheduler.hello(turns)
        self.down.append(an_announcement(unasked=True))
        before = len(self.up)
        self.ledger.opened()
        assert ([fact.run_ended.run for fact in self.up[before:] if fact.WhichOneof("fact") == "run_ended"] == ["r"]) is self.ended

    @precondition(lambda self: self.ledger.line is not Line.CLOSED)
    @rule(restart=st.booleans())
    def lose(self, restart: bool) -> None:
        self.ledger.closed()
        if self.snapshot:
            self.snapshot.close()
        self.up.clear()
        self.down.clear()
        self.sent.clear()
        if restart:
            seq, self.scheduler = self.scheduler.seq, ModelScheduler(keeps_held=self.scheduler.keeps_held)
            self.scheduler.seq = seq

    @precondition(lambda self: self.ledger.line is Line.OPEN and (self.up or self.down))
    @rule(up=st.integers(min_value=0, max_value=9), down=st.integers(min_value=0, max_value=9))
    def arrive(self, up: int, down: int) -> None:
        for _ in range(min(up, len(self.up))):
            if order := self.scheduler.absorb(self.up.pop(0)):
                self.down.append(order)
        for _ in range(min(down, len(self.down))):
            self.absorb(self.down.pop(0))

    @precondition(lambda self: self.ledger.line is Line.OPEN)
    @rule(unasked=st.booleans())
    def announce(self, unasked: bool) -> None:
        self.down.append(an_announcement(unasked=unasked))

    @precondition(lambda self: self.ledger.line is Line.OPEN and self.scheduler.held)
    @rule(number=numbers, replica=st.sampled_from(["a", "b", "j", "unannounced", "refuse"]))
    def decide(self, number: int, replica: str) -> None:
        turn = self.pick(list(self.scheduler.held), number)
        self.down.append(self.scheduler.refuse(turn) if replica == "refuse" else self.scheduler.place(turn, replica))

    @precondition(lambda self: self.ledger.line is Line.OPEN and self.sent)
    @rule(number=numbers)
    def repeat(self, number: int) -> None:
        """An order that came before comes again."""
        self.down.append(self.sent[number % len(self.sent)])

    def absorb(self, order: pb.Order) -> None:
        self.sent.append(order)
        absorb(self.ledger, order)

    @rule()
    def time_passes(self) -> None:
        self.now += 0.6
        if self.ledger.line is Line.OPEN:
            self.ledger.tick()

    # ---- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def each_attempt_hears_one_word(self) -> None:
        for turn, waiter in self.waiters.items():
            attempts = [word.attempt for word in waiter.final if isinstance(word, Placement)]
            assert attempts == sorted(set(attempts)), turn
            refusals = [word for word in waiter.final if isinstance(word, Refusal)]
            assert len(refusals) <= 1
            if refusals:
                assert waiter.final[-1] is refusals[0]
                self.alive.discard(turn)

    @invariant()
    def each_query_is_answered_once_and_with_what_was_asked(self) -> None:
        for number, found in enumerate(self.found, 1):
            assert found in ([], [""], [f"resp_{number}"])

    @invariant()
    def the_memory_lists_exactly_the_turns_with_a_place(self) -> None:
        assert set(self.memory.in_flight) == {turn for turn, state in self.ledger._turns.items() if state.replica}
        assert set(self.ledger._turns) == self.alive
        for run in self.memory.runs.values():
            assert run.in_flight == sum(record.owner is run for record in self.memory.in_flight.values())

    def teardown(self) -> None:
        """Let everything arrive: both sides agree; let every turn end: nothing remains on either side."""
        if not hasattr(self, "ledger"):
            return
        if self.ledger.line is Line.CLOSED:
            self.say_hello()
        if self.ledger.line is Line.OPENING:
            self.be_welcomed()
        self.settle()
        assert {turn: each[0] for turn, each in self.scheduler.in_flight.items()} == {
            turn: record.attempt for turn, record in self.memory.in_flight.items()
        }
        if not self.scheduler.keeps_held:
            assert self.scheduler.held == {turn: each.attempt for turn, each in self.ledger._turns.items() if not each.replica}
        for turn in list(self.scheduler.held):
            self.down.append(self.scheduler.place(turn, "a"))
        self.settle()
        for turn, state in self.ledger._turns.items():
            word = self.waiters[turn].final[-1]
            assert isinstance(word, Placement)
            assert word.attempt == state.attempt, "placed, and nobody told its waiter"
        for turn in list(self.alive):
            self.ledger.finished(turn, "stop", None, paused=False)
        self.settle()
        assert (self.scheduler.held, self.scheduler.in_flight) == ({}, {})
        assert (self.ledger._turns, self.ledger._parked, self.memory.in_flight) == ({}, {}, {})
        assert all(len(found) == 1 for found in self.found), "somebody still waits to hear where a response is"

    def settle(self) -> None:
        while self.up or self.down or self.ledger._parked:
            while self.up:
                if order := self.scheduler.absorb(self.up.pop(0)):
                    self.down.append(order)
            while self.down:
                self.absorb(self.down.pop(0))
            self.now += 2.0  # longer than a place stays parked
            self.ledger.tick()
            self.each_attempt_hears_one_word()


TestSession = Session.TestCase
TestSession.settings = settings(max_examples=150, stateful_step_count=60)
