"""How do agents that call other APIs by themselves ask for quota, and tell what became of their calls?"""

import asyncio
import math
from typing import Final, Protocol

import mcp_types as types

from luftpause.kit.clock import monotonic
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.ids import random_text
from luftpause.kit.quota_evidence import EXCERPT_BYTES_MAX, limits_of
from luftpause.runtime.mcp_tools.answers import Answer, answer
from luftpause.runtime.mcp_tools.arguments import parse
from luftpause.runtime.mcp_tools.caller import Context, caller_of
from luftpause.runtime.mcp_tools.quota_arguments import QuotaReportArguments, QuotaReserveArguments
from luftpause.runtime.ports import Json
from luftpause.runtime.refusals import stopping

POLL_SECONDS_MAX: Final = 50.0  # one question waits this long; the next one keeps its place


class Quotas(Protocol):
    async def ask(self, what: str, target: str, body: Json, caller: str, wait_seconds: float = 0.0) -> tuple[int, Json]:
        """What `/v1/quota/{target}/{what}` answers: 200 and its JSON, or 429 and the `error` in it. Raises LuftpauseError."""
        ...


class QuotaTools:
    """`quota_reserve` and `quota_report`. `quotas` None: there is no dataplane to ask."""

    def __init__(self, config: RuntimeConfig, quotas: Quotas | None, stopping: asyncio.Event) -> None:
        self._config = config
        self._quotas = quotas
        self._stopping = stopping

    async def reserve(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(QuotaReserveArguments, "quota_reserve", params.arguments)
        asking = asyncio.ensure_future(self._reserve(wanted, caller_of(ctx)))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            while not asking.done():
                await asyncio.wait({asking, stop}, timeout=self._config.progress_seconds, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    break
                if stop.done():
                    raise stopping()
                await ctx.session.report_progress(0, 1, f"waiting for quota of {wanted.target}")
            return asking.result()
        finally:
            for each in (asking, stop):
                each.cancel()
            await asyncio.gather(asking, stop, return_exceptions=True)

    async def _reserve(self, wanted: QuotaReserveArguments, caller: str) -> Answer:
        lease = wanted.lease or random_text()
        seconds = min(self._config.await_seconds_max, self._config.await_seconds if wanted.wait is None else wanted.wait)
        give_up_at = monotonic() + seconds
        body: Json = {"lease": lease, "retry": bool(wanted.retry)}
        body |= {"cost": wanted.cost} if wanted.cost is not None else {}
        body |= {"priority": wanted.priority} if wanted.priority is not None else {}
        while True:
            wait = max(0.0, min(POLL_SECONDS_MAX, give_up_at - monotonic()))
            status, said = await self._port.ask("reserve", wanted.target, body | {"waitMs": round(wait * 1000)}, caller, wait)
            if status == 200:
                return answer(_granted_text(wanted.target, said), {"granted": True, **said})
            retry_seconds = said.get("retryMs", 1000) / 1000
            if retry_seconds > give_up_at - monotonic():
                denied: Json = {"granted": False, "lease": lease, "retryMs": said["retryMs"], "reason": said.get("reason", "quota")}
                return answer(_denied_text(wanted.target, denied), denied)
            await asyncio.sleep(min(retry_seconds, 1.0) if wait < POLL_SECONDS_MAX else 0.0)

    async def report(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        told = parse(QuotaReportArguments, "quota_report", params.arguments)
        named: Json = {"lease": told.lease, "fence": told.fence}
        if told.sent is False:
            status, said = await self._port.ask("release", told.target, named, caller_of(ctx))
            settled = status == 200 and said.get("released") is True
            return answer(_settled_text(settled, limited=False, retry_ms=None), {"settled": settled, "limited": False})
        named |= {"status": told.status, "headers": limits_of((told.headers or {}).items())}
        named |= {"body": told.body[:EXCERPT_BYTES_MAX]} if told.body else {}
        named |= {"actual": told.actual} if told.actual else {}
        _, said = await self._port.ask("report", told.target, named, caller_of(ctx))
        settled, limited = bool(said.get("settled")), bool(said.get("limited"))
        kept = {key: said[key] for key in ("kind", "retryMs") if key in said}
        return answer(
            _settled_text(settled, limited=limited, retry_ms=said.get("retryMs")), {"settled": settled, "limited": limited, **kept}
        )

    @property
    def _port(self) -> Quotas:
        if self._quotas is None:
            raise LuftpauseError("this runtime has no dataplane to ask for quotas; set runtime.dataplane", code="no_dataplane", status=503)
        return self._quotas


def _granted_text(target: str, said: Json) -> str:
    return (
        f"Granted: call {target} now. Afterwards tell it by quota_report with lease {said['lease']} and fence {said['fence']}, "
        f"within {said['expiresMs'] / 1000:g} s."
    )


def _denied_text(target: str, denied: Json) -> str:
    seconds = math.ceil(denied["retryMs"] / 1000)
    return f"Not now ({denied['reason']}): don't call {target}. Ask again in {seconds} s, with lease {denied['lease']}."


def _settled_text(settled: bool, *, limited: bool, retry_ms: float | None) -> str:
    text = "Noted." if settled else "Noted; the lease had ended already, and what it reserved counts as used."
    if not limited:
        return text
    if retry_ms is None:
        return f"{text} The provider refused by quota, and waiting does not help: don't make this call again."
    return f"{text} The provider refused by quota: reserve again (retry: true) before the next try, in {math.ceil(retry_ms / 1000)} s."
