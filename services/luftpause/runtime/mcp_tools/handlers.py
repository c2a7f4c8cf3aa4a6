"""What does each tool do?"""

import asyncio
from collections.abc import Awaitable, Callable

import mcp_types as types

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.mcp_tools import views
from luftpause.runtime.mcp_tools.answers import Answer, Kept, answer
from luftpause.runtime.mcp_tools.arguments import (
    ApproveArguments,
    CancelArguments,
    DecideArguments,
    NoArguments,
    SpawnArguments,
    StatusArguments,
    parse,
)
from luftpause.runtime.mcp_tools.blocking import Blocking
from luftpause.runtime.mcp_tools.caller import Context, caller_of, owner_of
from luftpause.runtime.mcp_tools.fitting import fitting
from luftpause.runtime.mcp_tools.quotas import Quotas, QuotaTools
from luftpause.runtime.mcp_tools.spawning import Spawning
from luftpause.runtime.ports import Runs, Toolbox

Handler = Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]


class Handlers:
    """The tools over `Runs` and `Toolbox`. A handler never owns a run: when its request goes away the run goes on."""

    def __init__(
        self, config: RuntimeConfig, runs: Runs, toolbox: Toolbox, stopping: asyncio.Event, spawning: Spawning, quotas: Quotas | None = None
    ) -> None:
        self._runs = runs
        self._toolbox = toolbox
        self._kept = Kept()
        self._spawning = spawning
        self._blocking = Blocking(config, runs, stopping, self._kept, spawning)
        quota = QuotaTools(config, quotas, stopping)
        self.cancelled = self._blocking.cancelled
        self.by_name: dict[str, Handler] = {
            "spawn": self.spawn,
            "await": self._blocking.wait,
            "run": self._blocking.run,
            "status": self.status,
            "cancel": self.cancel,
            "approve": self.approve,
            "tools": self.tools,
            "decide": self.decide,
            "quota_reserve": quota.reserve,
            "quota_report": quota.report,
        }

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        """A tool's answer; what a person or model can mend is an error result."""
        try:
            return await self.by_name[params.name](ctx, params)
        except LuftpauseError as error:
            return answer(error.message, None, failed=True)

    async def spawn(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        request = await self._spawning.request(ctx, parse(SpawnArguments, "spawn", params.arguments))
        run = await asyncio.shield(self._kept.keep(self._runs.spawn(request)))
        return answer(views.spawned_text(run), views.run_json(run))

    async def status(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(StatusArguments, "status", params.arguments)
        owner = owner_of(ctx)
        if wanted.handle is not None:
            (run,) = fitting([self._runs.view(wanted.handle, owner)])
            return answer(views.run_text(run), views.runs_json([run]))
        runs = self._runs.views(owner)
        return answer(views.listed_text(runs), views.listed_json(runs))

    async def cancel(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(CancelArguments, "cancel", params.arguments)
        (run,) = fitting([await asyncio.shield(self._kept.keep(self._runs.cancel(wanted.handle, owner_of(ctx))))])
        return answer(views.run_text(run), views.run_json(run))

    async def approve(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(ApproveArguments, "approve", params.arguments)
        approving = self._runs.approve(wanted.handle, wanted.allow, wanted.approval_id, owner_of(ctx))
        decided = await asyncio.shield(self._kept.keep(approving))
        return answer(views.decided_text(decided), views.decided_json(decided))

    async def tools(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        del ctx
        parse(NoArguments, "tools", params.arguments)
        tools, servers = self._toolbox.tools(), self._toolbox.servers()
        return answer(views.tools_text(tools, servers), views.tools_json(tools, servers))

    async def decide(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(DecideArguments, "decide", params.arguments)
        labels = wanted.labels
        if labels is not None and len(set(labels)) < len(labels):
            raise LuftpauseError("decide: `labels` must differ from each other", code="bad_argument", status=400)
        decision = await self._runs.decide(wanted.input, labels, wanted.model, caller_of(ctx))
        return answer(views.decision_text(decision), views.decision_json(decision))
