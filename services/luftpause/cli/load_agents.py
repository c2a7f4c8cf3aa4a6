"""How do agents with their own loop load a proxy, router or engine, in a closed loop for a given time?"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from luftpause.cli import tokens
from luftpause.cli.load_report import Outcome, RunRecord
from luftpause.cli.load_turn import Json, Turn, TurnFailedError, ask
from luftpause.kit import ids
from luftpause.kit.errors import LuftpauseError

TURN_SECONDS_MAX: Final = 660.0  # a turn may be held as long as its agent waits
CONNECT_SECONDS_MAX: Final = 5.0
AFTER_ERROR_SECONDS: Final = 1.0
CLEAN_UP_SECONDS_MAX: Final = 5.0
SYSTEM: Final = "You are a careful research agent. Look facts up with the tool before you answer."
TOOLS: Final[list[Json]] = [{
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a fact up.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}]  # fmt: skip


class Load(Struct, frozen=True):
    """What to send. Tool calls are answered here, after `tool_seconds`."""

    base_url: str
    model: str
    agents: int
    duration_s: float
    turn_class: str
    caller: str
    context_chars: int
    tool_seconds: float
    tool_calls_max: int
    max_tokens: int
    run_ids: bool  # False: runs are recognised by their tool-call ids alone
    token: str = ""  # empty: none is shown


class _Run:
    """A run in progress: what it has cost so far."""

    def __init__(self, load: Load, number: str) -> None:
        self.load = load
        self.began = time.monotonic()
        self.id = ids.new_run_id() if load.run_ids else ""
        self.turns: list[Turn] = []
        self.messages: list[Json] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": _context(number, load.context_chars)},
        ]

    @property
    def tool_calls(self) -> int:
        return sum(len(turn.calls) for turn in self.turns)

    def headers(self) -> dict[str, str]:
        headers = {"x-luftpause-class": self.load.turn_class, "x-luftpause-caller": self.load.caller}
        return {**headers, "x-luftpause-run-id": self.id} if self.load.run_ids else headers

    def body(self) -> Json:
        body: Json = {"model": self.load.model, "messages": self.messages, "stream": True, "stream_options": {"include_usage": True}}
        if self.load.max_tokens:
            body["max_tokens"] = self.load.max_tokens
        if self.tool_calls < self.load.tool_calls_max:
            body["tools"] = TOOLS
        return body

    def record(self, outcome: Outcome, error: str | None = None) -> RunRecord:
        return RunRecord(
            turn_class=self.load.turn_class,
            outcome=outcome,
            seconds=time.monotonic() - self.began,
            turns=len(self.turns),
            first_token_s=tuple(turn.first_token_s for turn in self.turns if turn.first_token_s is not None),
            prompt_tokens=sum(turn.prompt_tokens for turn in self.turns),
            cached_tokens=sum(turn.cached_tokens for turn in self.turns),
            completion_tokens=sum(turn.completion_tokens for turn in self.turns),
            tool_calls=self.tool_calls,
            error=error,
        )


def _context(number: str, chars: int) -> str:
    """A task whose text no other run shares, of about `chars` characters."""
    task = f"Task {number}: compare what the notes say and name the one that fits."
    notes = "".join(f"\nNote {number}-{i}: item {i} was seen next to item {7 * i % 101}." for i in range(chars // 40))
    return task + notes[: max(0, chars - len(task))]


async def run_load(load: Load, done: Callable[[int], None]) -> list[RunRecord]:
    """All runs that began within the time, those that did not end in it as unfinished. `done` gets the number of ended runs."""
    records: list[RunRecord] = []
    open_runs: set[_Run] = set()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=load.agents)
    timeout = httpx.Timeout(TURN_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
    async with httpx.AsyncClient(
        base_url=load.base_url.rstrip("/") + "/",
        headers=tokens.headers(load.token),
        limits=limits,
        timeout=timeout,
        trust_env=False,  # a proxy from the environment must not get calls to this machine
    ) as client:

        async def agent(name: int) -> None:
            count = 0
            while True:
                count += 1
                run = _Run(load, f"{name}-{count}")
                open_runs.add(run)
                record = await _one_run(client, run)
                open_runs.discard(run)
                records.append(record)
                done(len(records))
                if record.outcome is Outcome.FAILED:
                    await asyncio.sleep(AFTER_ERROR_SECONDS)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(load.duration_s):
                await asyncio.gather(*(agent(name) for name in range(load.agents)))
        records += [run.record(Outcome.UNFINISHED) for run in open_runs]
        await _forget(client, open_runs)
    return records


async def _one_run(client: httpx.AsyncClient, run: _Run) -> RunRecord:
    try:
        while True:
            turn = await ask(client, run.body(), run.headers())
            run.turns.append(turn)
            if not turn.calls:
                await _forget(client, {run})
                return run.record(Outcome.COMPLETED)
            await asyncio.sleep(run.load.tool_seconds)
            run.messages.append(turn.message())
            run.messages += [{"role": "tool", "tool_call_id": call["id"], "content": "Found: item 12."} for call in turn.calls.values()]
    except TurnFailedError as error:
        return run.record(Outcome.FAILED, str(error))


async def _forget(client: httpx.AsyncClient, runs: set[_Run]) -> None:
    """Tells luftpause that the runs are over, so that none keeps a place; other servers have no runs."""
    known = {turn.run for run in runs for turn in run.turns[-1:] if turn.run}
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(CLEAN_UP_SECONDS_MAX):
            await asyncio.gather(*(client.delete(f"runs/{run}") for run in known))


async def choose_model(base_url: str, token: str = "") -> str:
    """The only model that is served there. Raises LuftpauseError when there is none, more than one, or nobody answers."""
    url = base_url.rstrip("/") + "/models"
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=CONNECT_SECONDS_MAX, headers=tokens.headers(token)) as client:
            answer = await client.get(url)
            answer.raise_for_status()
            models = sorted(str(model["id"]) for model in answer.json()["data"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise LuftpauseError(f"{url} can't be read: {_why(error, base_url)}", code="no_server") from error
    if len(models) != 1:
        raise LuftpauseError(f"{base_url} serves {', '.join(models) or 'no model'}; choose one with --model", code="which_model")
    return models[0]


def _why(error: Exception, base_url: str) -> str:
    """What went wrong, and what may mend it."""
    match error:
        case httpx.HTTPStatusError(response=answer) if answer.status_code == 401:
            return "it answered 401; name the variable that holds your token with --token-env"
        case httpx.HTTPStatusError(response=answer):
            hint = "; a base URL mostly ends in /v1" if not urlsplit(base_url).path.strip("/") else ""
            return f"it answered {answer.status_code}{hint}"
        case httpx.HTTPError():
            return f"{str(error) or type(error).__name__}; is `luftpause up` running, and is --base-url right?"
        case _:
            return "its answer is no list of models; is --base-url right?"
