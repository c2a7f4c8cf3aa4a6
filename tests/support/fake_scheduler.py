"""A scheduler for the dataplane's tests: places, holds and refuses on command, and checks the order of the facts it is told."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from luftpause.dataplane.turns import Ask, Found, Kind, Lease, Placement, Refusal, Replica, ReturnReason, Usage, Waiter

Decide = Callable[["FakeScheduler", Ask], None]


def replica(name: str, url: str, *models: str, state: str = "healthy", api_key: str = "", asks_usage: bool = False) -> Replica:
    return Replica(name, url, models or ("m",), Kind.GENERATIVE, state, api_key, asks_usage=asks_usage)


def hosted(name: str, url: str, *, holds: bool = True) -> Replica:
    """One with a quota. `holds`: its refusals by quota are hidden."""
    return Replica(name, url, ("m",), Kind.GENERATIVE, "healthy", tells_limits=True, holds_limits=holds)


class FakeScheduler:
    """`facts` are tuples (name, turn, …) in the order they came. A turn that breaks the order of facts fails the test at once."""

    def __init__(self, *replicas: Replica, decide: Decide | None = None) -> None:
        self.table = {each.name: each for each in replicas}
        self.contacted = self.connected = True
        self.decide: Decide = decide or place_first
        self.facts: list[tuple[object, ...]] = []
        self.asks: dict[str, Ask] = {}
        self.waiters: dict[str, Waiter] = {}
        self.state: dict[str, str] = {}  # held, placed, started, over
        self.attempts: dict[str, int] = {}
        self.lost: dict[str, Usage | None] = {}  # what was seen of turns that failed
        self.without: dict[str, list[str]] = {}
        self.at: dict[str, str] = {}
        self.delivered: list[str] = []
        self.ended_runs: list[str] = []
        self.calls: dict[str, str] = {}  # tool-call id -> run
        self.tools: dict[str, tuple[str, ...]] = {}  # turn -> names of the tools that its answer called
        self.principals: list[str] = []  # of ended runs and of responses that were asked for
        self.located: dict[str, str] = {}  # response -> replica
        self.seeking: dict[str, Found] = {}
        self.silent = False
        self._changed = asyncio.Event()

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return self.table

    # ---- commands

    def place(
        self, turn: str, name: str, *, hold_reason: str = "", held_ms: int = 0, priority: int | None = None, lease: Lease | None = None
    ) -> None:  # fmt: skip
        assert self.state[turn] == "held", (turn, self.state[turn])
        self.state[turn] = "placed"
        self.at[turn] = name
        self.waiters[turn].placed(Placement(self.table[name], self.run(turn), self.attempts[turn], hold_reason, held_ms, priority, lease))

    def hold(self, turn: str, reason: str) -> None:
        self.waiters[turn].held(self.run(turn), reason)

    def refuse(self, turn: str, status: int, code: str, message: str, retry_after_s: int = 0) -> None:
        assert self.state[turn] == "held"
        self.state[turn] = "over"
        self.waiters[turn].refused(Refusal(self.run(turn), status, code, message, retry_after_s))

    def run(self, turn: str) -> str:
        ask = self.asks[turn]
        return ask.run or ask.fresh_run

    # ---- what tests ask

    @property
    def open_turns(self) -> list[str]:
        return [turn for turn, state in self.state.items() if state != "over"]

    @property
    def only(self) -> str:
        """The one turn that there is."""
        (turn,) = self.asks
        return turn

    def told(self, turn: str | None = None) -> list[str]:
        """Names of the facts of a turn (of the only one)."""
        if turn is None and not self.asks:
            return []
        turn = turn or self.only
        return [str(fact[0]) for fact in self.facts if fact[1] == turn]

    def last(self, name: str) -> tuple[object, ...]:
        return next(fact for fact in reversed(self.facts) if fact[0] == name)

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def all_over(self, seconds: float = 30.0) -> None:
        await self.until(lambda: bool(self.state) and not self.open_turns, seconds)

    # ---- Scheduler

    def _fact(self, name: str, turn: str, *more: object) -> None:
        self.facts.append((name, turn, *more))
        self._changed.set()

    def _expect(self, turn: str, *states: str) -> None:
        assert self.state.get(turn, "unknown") in states, f"{self.facts[-1]} although the turn is {self.state.get(turn, 'unknown')}"

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        assert ask.turn not in self.asks
        self._fact("ask", ask.turn)
        self.asks[ask.turn] = ask
        self.waiters[ask.turn] = waiter
        self.state[ask.turn] = "held"
        self.attempts[ask.turn] = 1
        self.without[ask.turn] = []
        self.decide(self, ask)

    def abandon(self, turn: str) -> None:
        self._fact("abandon", turn)
        self._expect(turn, "held", "placed")
        self.state[turn] = "over"

    def give_back(self, turn: str, reason: ReturnReason) -> None:
        self._fact("give_back", turn, reason)
        self._expect(turn, "placed", "started")
        self.state[turn] = "held"
        self.attempts[turn] += 1
        self.without[turn].append(self.at[turn])
        self.decide(self, self.asks[turn])

    def started(self, turn: str) -> None:
        self._fact("started", turn)
        self._expect(turn, "placed")
        self.state[turn] = "started"

    def first_token(self, turn: str) -> None:
        assert "first_token" not in self.told(turn)
        self._fact("first_token", turn)
        self._expect(turn, "started")

    def tool_calls_seen(self, turn: str, ids: Sequence[str]) -> None:
        assert ids
        assert all(ids)
        self._fact("tool_calls_seen", turn, tuple(ids))
        self._expect(turn, "started")

    def response_seen(self, turn: str, response: str) -> None:
        self._fact("response_seen", turn, response)
        self._expect(turn, "started")

    def finished(
        self,
        turn: str,
        finish_reason: str,
        usage: Usage | None,
        *,
        paused: bool,
        tool_call_ids: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        self._fact("finished", turn, finish_reason, usage, paused, tuple(tool_call_ids))
        self.tools[turn] = tuple(tools)
        self._expect(turn, "started")
        self.state[turn] = "over"

    def failed(self, turn: str, reason: str, usage: Usage | None = None) -> None:
        self._fact("failed", turn, reason)
        self.lost[turn] = usage
        self._expect(turn, "started")
        self.state[turn] = "over"

    def end_run(self, run: str, principal: str = "") -> None:
        self.ended_runs.append(run)
        self.principals.append(principal)

    @property
    def hosted(self) -> bool:
        return any(replica.tells_limits for replica in self.replicas.values())

    def answer_told(self, turn: str, status: int, headers: Mapping[str, str], excerpt: str) -> None:
        self._fact("answer_told", turn, status, dict(headers), excerpt)
        self._expect(turn, "started")

    def run_of_call(self, id_: str, principal: str) -> str:
        self.principals.append(principal)
        return self.calls.get(id_, "")

    def locate(self, response: str, principal: str, found: Found) -> str:
        """At once, unless `silent`."""
        self.principals.append(principal)
        if self.silent:
            self.seeking[response] = found
            self._changed.set()
        else:
            found(self.located.get(response, ""))
        return response

    def unseek(self, query: str) -> None:
        del self.seeking[query]
        self._changed.set()

    def suspect(self, replica: str, reason: str) -> None:
        self.facts.append(("suspect", replica, reason))

    def delivering(self, replica: str) -> None:
        self.delivered.append(replica)


def place_first(scheduler: FakeScheduler, ask: Ask) -> None:
    """The first replica that did not give the turn back; none left: held for want of one."""
    for name in scheduler.table:
        if name not in scheduler.without[ask.turn]:
            scheduler.place(ask.turn, name)
            return
    scheduler.hold(ask.turn, "no_replica")


def place_soon(scheduler: FakeScheduler, ask: Ask) -> None:
    """The same, but as an answer that comes later."""
    asyncio.get_running_loop().call_soon(_place_if_open, scheduler, ask)


def _place_if_open(scheduler: FakeScheduler, ask: Ask) -> None:
    if scheduler.state[ask.turn] == "held":
        place_first(scheduler, ask)


def hold_all(scheduler: FakeScheduler, ask: Ask) -> None:
    scheduler.hold(ask.turn, "capped")
