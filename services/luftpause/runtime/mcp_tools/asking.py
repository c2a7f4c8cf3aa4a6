"""How is a person asked for consent to a tool call while an MCP call waits for its run?"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import ValidationError

from luftpause.kit.clock import monotonic
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.runtime.mcp_tools.caller import Context, takes_events
from luftpause.runtime.mcp_tools.views import approval_text
from luftpause.runtime.ports import Decided, Json, PendingApproval, Runs, RunView

Mode = Literal["all", "any"]
Keep = Callable[[Coroutine[Any, Any, Decided]], "asyncio.Task[Decided]"]

ASKED_CHARS: Final = 4000
FORM: Final[Json] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this tool call?"}},
    "required": ["allow"],
}

_log = Log("runtime.mcp")


class Waited(Struct, frozen=True):
    """`left`: the client was asked and gave no answer, so it is not asked again within this call."""

    runs: tuple[RunView, ...]
    left: bool = False


class _Asked:
    """A wait within a session, and the questions that it brought."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.known: set[str] = set()
        self.queue: deque[PendingApproval] = deque()
        self.waiting: asyncio.Task[tuple[RunView, ...]] | None = None
        self.question: asyncio.Task[bool] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in (self.waiting, self.question) if task is not None]

    def add(self, runs: Sequence[RunView]) -> bool:
        """The wait has ended so; False: with no new question."""
        self.waiting = None
        new = [approval for approval in pending(runs) if approval.key not in self.known]
        self.known.update(approval.key for approval in new)
        self.queue.extend(new)
        return bool(new)


class Asking:
    """Questions of one MCP call. `keep` lets a decision go on when the call is cancelled."""

    def __init__(self, ctx: Context, runs: Runs, owner: str | None, keep: Keep, *, answer_seconds_max: float) -> None:
        self._ctx = ctx
        self._runs = runs
        self._owner = owner
        self._keep = keep
        self._answer_seconds_max = answer_seconds_max

    async def wait(self, handles: Sequence[str], mode: Mode, seconds: float) -> Waited:
        """As `Runs.wait`; within a session the client is asked meanwhile, one question at a time.

        A client that can't be asked so: ends as soon as one of the runs needs an approval.
        """
        if not can_be_asked(self._ctx) or is_stateless(self._ctx):
            return Waited(await self._runs.wait(handles, mode, seconds, self._owner, frozenset()))
        asked = _Asked(monotonic() + seconds)
        try:
            while True:
                self._start(asked, handles, mode)
                await asyncio.wait(asked.tasks, return_when=asyncio.FIRST_COMPLETED)
                if asked.waiting is not None and asked.waiting.done():
                    runs = asked.waiting.result()
                    if not asked.add(runs) or satisfied(runs, mode):
                        return Waited(runs)
                elif asked.question is not None:
                    if not asked.question.result():
                        return Waited(tuple(self._runs.view(handle, self._owner) for handle in handles), left=True)
                    asked.question = None
        finally:
            await _cancelled(*asked.tasks)

    def _start(self, asked: "_Asked", handles: Sequence[str], mode: Mode) -> None:
        """What is not going on yet: the wait, and the next question."""
        if asked.waiting is None:
            left = max(0.0, asked.deadline - monotonic())
            asked.waiting = asyncio.create_task(self._runs.wait(handles, mode, left, self._owner, frozenset(asked.known)))
        if asked.question is None and asked.queue:
            asked.question = asyncio.create_task(self._ask(asked.queue.popleft()))

    async def answered(self, asked: Collection[str], responses: types.InputResponses) -> bool:
        """Takes the answers to an input-required result; False: one of them was no answer."""
        all_answered = True
        for key in asked:
            if key in responses:
                handle, _, approval = key.partition("/")
                all_answered &= await self._decide(handle, approval, responses[key])
        return all_answered

    async def _ask(self, approval: PendingApproval) -> bool:
        """False: the client gave no answer (it dismissed the question, or let its time pass), so it is still open."""
        asking = asyncio.create_task(self._ctx.session.elicit_form(question(approval), FORM, self._ctx.request_id))
        over = asyncio.create_task(self._runs.approval_over(approval.handle, approval.id, self._owner))
        try:
            await asyncio.wait({asking, over}, timeout=self._answer_seconds_max, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return over.done()  # somebody else decided
            return await self._decide(approval.handle, approval.id, asking.result())
        except (MCPError, ValidationError) as error:
            _log.info("the client could not ask for an approval", run=approval.handle, error=str(error)[:200])
            return False
        finally:
            await _cancelled(asking, over)

    async def _decide(self, handle: str, approval: str, response: object) -> bool:
        allow = answer_of(response)
        if allow is None:
            return False
        try:
            await asyncio.shield(self._keep(self._runs.approve(handle, allow, approval, self._owner)))
        except LuftpauseError as error:
            _log.info("an answered approval was over", run=handle, approval=approval, error=error.message)
        return True


def can_be_asked(ctx: Context) -> bool:
    """Does the client show forms, and is there a way to it? A question in mid-call needs an event stream."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return is_stateless(ctx) or takes_events(ctx)


def is_stateless(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def pending(runs: Sequence[RunView]) -> list[PendingApproval]:
    return [approval for run in runs for approval in run.pending_approvals]


def satisfied(runs: Sequence[RunView], mode: Mode) -> bool:
    ended = (run.state.ended for run in runs)
    return all(ended) if mode == "all" else any(ended)


def question(approval: PendingApproval) -> str:
    return f"The sub-agent {approval.handle} asks for consent to {approval_text(approval, ASKED_CHARS)}."


def request(approval: PendingApproval) -> types.ElicitRequest:
    """The question in an input-required result or a task."""
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=question(approval), requested_schema=FORM))


def answer_of(response: object) -> bool | None:
    """What a client's answer to a form decides; None (dismissed, or nothing that says yes or no): nothing."""
    if isinstance(response, dict):
        try:
            response = types.ElicitResult.model_validate(response)
        except ValidationError:
            return None
    if not isinstance(response, types.ElicitResult):
        return None
    if response.action == "decline":
        return False
    allow = (response.content or {}).get("allow") if response.action == "accept" else None
    return allow if isinstance(allow, bool) else None


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
