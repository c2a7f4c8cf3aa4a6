"""How do agents load a proxy, router or engine: in a closed loop, as they arrive, or as a trace says?"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from itertools import count
from random import Random
from typing import Any, Final

import httpx
from msgspec import Struct

from luftpause.cli import tokens
from luftpause.cli.load_decide import Decided, Deciding, decide
from luftpause.cli.load_plan import Plan
from luftpause.cli.load_report import Outcome, RunRecord
from luftpause.cli.load_run import AgentScript, PlannedScript, Run, Shape, Who
from luftpause.cli.load_target import CONNECT_SECONDS_MAX
from luftpause.cli.load_turn import Json, TurnFailedError, ask
from luftpause.kit.errors import LuftpauseError

TURN_SECONDS_MAX: Final = 660.0  # a turn may be held as long as its agent waits
AFTER_ERROR_SECONDS: Final = 1.0
CLEAN_UP_SECONDS_MAX: Final = 5.0
RUN_HEADER: Final = "x-luftpause-run-id"
CHARACTERS_PER_TOKEN: Final = 4.0


class Crowd(Struct, frozen=True):
    """
    Agents of one class. `agents`: each begins a run as soon as its last one has ended (closed loop).

    `rate`: runs begin at random moments, so many per second on average, whatever becomes of those before (open loop).
    """

    turn_class: str
    agents: int = 0
    rate: float = 0.0


class Load(Struct, frozen=True):
    """
    What to send, for how long; `seconds` None: until the trace is over.

    With `plans` runs are those of a trace: taken in turn by the agents of their class, again from the first one when there are no more;
    without `crowds` each is begun at its arrival. Without them agents are as `shape` says. `speed` 10: pauses and arrivals take a tenth.
    """

    base_url: str
    model: str
    crowds: tuple[Crowd, ...] = ()
    seconds: float | None = None
    caller: str = "loadgen"
    callers: int = 1  # beyond 1: `caller`-0, `caller`-1, …
    turn_class: str = "interactive"  # of planned runs that have none
    shape: Shape = Shape()
    plans: tuple[Plan, ...] = ()
    speed: float = 1.0
    run_header: str = RUN_HEADER  # empty: runs are recognised by their tool-call ids alone
    run_field: str = ""  # where in the body the run's id stands as well, as in `vllm_xargs.agentic_context.program_id`
    run_end: str = ""  # URL that is posted to when a run is over, with its id for {run}: routers of others want to know
    bodies: dict[str, Json] = {}  # class -> fields that its requests have besides
    characters_per_token: float = CHARACTERS_PER_TOKEN
    open_runs_max: int = 5_000
    seed: int | None = None
    token: str = ""  # empty: none is shown
    deciding: Deciding = Deciding()

    @property
    def agents(self) -> int:
        return sum(crowd.agents for crowd in self.crowds)


class Standing(Struct):
    """How it goes."""

    ended: int = 0
    failed: int = 0
    open: int = 0
    decided: int = 0


class Loaded(Struct, frozen=True):
    """What came of a load: runs that began within its time (those that did not end in it as unfinished), and questions of one pass."""

    runs: list[RunRecord]
    decided: list[Decided]
    seconds: float
    seed: int


Watch = Callable[[Standing], None]


async def run_load(load: Load, watch: Watch, stop: asyncio.Event | None = None) -> Loaded:
    """`watch` is called whenever a run has ended; `stop` ends the load before its time.

    Raises LuftpauseError (`bad_trace`) if the trace has no run for one of the crowds.
    """
    for crowd in load.crowds:
        if load.plans and not any(plan.turn_class in {None, crowd.turn_class} for plan in load.plans):
            raise LuftpauseError(f"the trace has no {crowd.turn_class} runs", code="bad_trace")
    timeout = httpx.Timeout(TURN_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
    async with httpx.AsyncClient(
        base_url=load.base_url.rstrip("/") + "/",
        headers=tokens.headers(load.token),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=load.open_runs_max),
        timeout=timeout,
        trust_env=False,  # a proxy from the environment must not get calls to this machine
    ) as client:
        return await _Loading(load, client, watch, stop or asyncio.Event()).run()


class _Loading:
    def __init__(self, load: Load, client: httpx.AsyncClient, watch: Watch, stop: asyncio.Event) -> None:
        self._load = load
        self._stop = stop
        self._client = client
        self._watch = watch
        self._began = time.monotonic()
        self._seed = secrets.randbelow(2**32) if load.seed is None else load.seed
        self._numbers = count(1)
        self._plans: dict[str, Iterator[Plan]] = {}
        self._standing = Standing()
        self._records: list[RunRecord] = []
        self._open: set[Run] = set()
        self._decided: list[Decided] = []

    async def run(self) -> Loaded:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._load.seconds) as limit:
                async with _beside(self._cut(limit)), _beside(decide(self._client, self._load.deciding, self._began, self._decided)):
                    await self._runs()
                    if self._load.deciding.clients and self._load.seconds is not None:
                        await asyncio.Event().wait()  # the time ends it
        seconds = self._now() if self._stop.is_set() or self._load.seconds is None else self._load.seconds
        self._records += [run.record(Outcome.UNFINISHED) for run in self._open]
        await self._forget(self._open)
        return Loaded(self._records, self._decided, seconds, self._seed)

    async def _cut(self, limit: asyncio.Timeout) -> None:
        await self._stop.wait()
        if not limit.expired():  # while runs are ended because it is over, it can't be told anything
            limit.reschedule(asyncio.get_running_loop().time())

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _runs(self) -> None:
        """Every crowd at once, or the trace; for ever, but for a trace."""
        crowds = self._load.crowds
        agents = [self._agent(crowd, number) for crowd in crowds for number in range(crowd.agents)]
        streams = [self._arriving(crowd) for crowd in crowds if crowd.rate]
        await asyncio.gather(*agents, *streams, *([] if crowds or not self._load.plans else [self._replay()]))

    async def _agent(self, crowd: Crowd, number: int) -> None:
        while True:
            record = await self._one_run(self._new(crowd.turn_class, number))
            if record.outcome is Outcome.FAILED:
                await asyncio.sleep(AFTER_ERROR_SECONDS)

    async def _arriving(self, crowd: Crowd) -> None:
        """By a Poisson process."""
        chance = Random(f"{self._seed} {crowd.turn_class} arrivals")  # noqa: S311
        due = self._now()
        async with asyncio.TaskGroup() as tasks:
            for number in count():
                due += chance.expovariate(crowd.rate * self._load.speed)
                await asyncio.sleep(due - self._now())
                self._begin(tasks, crowd.turn_class, number)

    async def _replay(self) -> None:
        """Every run of the trace, when it arrives."""
        async with asyncio.TaskGroup() as tasks:
            for number, plan in enumerate(self._load.plans):
                await asyncio.sleep(plan.arrival_time / 1000 / self._load.speed - self._now())
                self._begin(tasks, plan.turn_class or self._load.turn_class, number, plan)

    def _begin(self, tasks: asyncio.TaskGroup, turn_class: str, number: int, plan: Plan | None = None) -> None:
        run = self._new(turn_class, number, plan)
        if len(self._open) < self._load.open_runs_max:
            self._open.add(run)  # before its task begins: as many may arrive at once as there are
            tasks.create_task(self._one_run(run))
        else:
            self._ended(run.record(Outcome.FAILED, f"not begun: {self._load.open_runs_max} runs were open"))

    def _new(self, turn_class: str, agent: int, plan: Plan | None = None) -> Run:
        load = self._load
        plan = plan or self._next_plan(turn_class)
        name = f"{self._seed}-{next(self._numbers)}"
        caller = (plan.caller if plan else None) or (f"{load.caller}-{agent % load.callers}" if load.callers > 1 else load.caller)
        who = Who(
            f"{plan.session_id}.{name}" if plan else name, turn_class, caller, self._now(), header=load.run_header, field=load.run_field
        )  # fmt: skip
        if plan is None:
            return Run(who, AgentScript(name, load.shape, Random(f"{turn_class} {name}")))  # noqa: S311
        return Run(who, PlannedScript(who.name, plan, load.characters_per_token), plan.rounds[0].prefix_len)

    def _next_plan(self, turn_class: str) -> Plan | None:
        if not self._load.plans:
            return None
        if turn_class not in self._plans:
            mine = [plan for plan in self._load.plans if plan.turn_class in {None, turn_class}]
            self._plans[turn_class] = _again_and_again(mine)
        return next(self._plans[turn_class], None)

    # ---- one run

    async def _one_run(self, run: Run) -> RunRecord:
        self._open.add(run)
        self._standing.open = len(self._open)
        try:
            await self._turns(run)
        except TurnFailedError as error:
            record = run.record(Outcome.FAILED, str(error))
        else:
            record = run.record(Outcome.COMPLETED)
            await self._forget({run})
        self._open.discard(run)
        self._ended(record)
        return record

    async def _turns(self, run: Run) -> None:
        while True:
            pause = await self._turn(run)
            if pause is None:
                return
            await asyncio.sleep(pause / self._load.speed)

    async def _turn(self, run: Run) -> float | None:
        extra = self._load.bodies.get(run.who.turn_class, {})
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": self._load.model, **run.script.body(), **streamed, **extra, **run.field()}
        asked = run.seconds
        return run.heard(asked, await ask(self._client, body, run.headers()))

    def _ended(self, record: RunRecord) -> None:
        self._records.append(record)
        self._standing.ended += 1
        self._standing.failed += record.outcome is Outcome.FAILED
        self._standing.open = len(self._open)
        self._standing.decided = len(self._decided)
        self._watch(self._standing)

    async def _forget(self, runs: set[Run]) -> None:
        """Tells luftpause that the runs are over, so that none keeps a place, and whoever else wants to know."""
        known = {run.answered for run in runs if run.answered}
        ends = {self._load.run_end.replace("{run}", run.id) for run in runs if run.id and run.rounds} if self._load.run_end else set[str]()
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(CLEAN_UP_SECONDS_MAX):
                await asyncio.gather(*(self._client.delete(f"runs/{run}") for run in known), *(self._client.post(url) for url in ends))


def _again_and_again(plans: list[Plan]) -> Iterator[Plan]:
    while plans:
        yield from plans


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """`work` goes on within the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
