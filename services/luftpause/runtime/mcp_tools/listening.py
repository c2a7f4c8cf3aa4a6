"""How do clients of both protocol generations hear that something changed?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, Final

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, ServerEvent, event_matches, event_to_notification

from luftpause.kit.logs import Log
from luftpause.runtime.mcp_tools.caller import Context, session_of
from luftpause.runtime.ports import Json

STREAMS_MAX: Final = 1024
EVENTS_MAX: Final = 1024  # not yet sent, of one stream; one that is slower than this ends, and its client asks anew
SESSIONS_MAX: Final = 10_000

_log = Log("runtime.mcp")


class Notice(types.Notification[Json, str]):
    """A notification that the SDK has no type for."""

    method: str
    params: Json


class Changes:
    """Tells of changes: sessions of the older protocol on their own stream, others on `subscriptions/listen`."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._streams: set[_Stream] = set()
        self._sessions: dict[str, ServerSession] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, event: ServerEvent) -> None:
        """Called on the event loop."""
        for stream in tuple(self._streams):
            stream.put(event)
        notification = event_to_notification(event, {})
        for name, session in tuple(self._sessions.items()):
            task = asyncio.create_task(self._tell_session(name, session, notification))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    def joined(self, ctx: Context) -> None:
        """A session of the older protocol is ready."""
        name = session_of(ctx)
        if name:
            self._sessions[name] = ctx.session
            if len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]

    async def listen(
        self,
        ctx: Context,
        params: types.SubscriptionsListenRequestParams,
        more: Json | None = None,
        following: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> types.SubscriptionsListenResult:
        """One stream; ends when the client leaves, the runtime stops or there is nothing left to say.

        `more`: what else is acknowledged; `following` sends it.
        """
        async with self._stream(ctx, params.notifications) as stream:
            await stream.acknowledge(more or {})
            work = [asyncio.ensure_future(each) for each in following]
            followed = asyncio.ensure_future(asyncio.gather(*work)) if work else None
            ends: list[asyncio.Future[Any]] = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(stream.pass_on())]
            if followed is not None and not stream.expects_events:
                ends.append(followed)
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (*ends, *work):
                    each.cancel()
                await asyncio.gather(*ends, *work, return_exceptions=True)
        return types.SubscriptionsListenResult(_meta=stream.meta)

    @contextlib.asynccontextmanager
    async def _stream(self, ctx: Context, wanted: types.SubscriptionFilter) -> AsyncGenerator["_Stream"]:
        if len(self._streams) >= STREAMS_MAX:
            raise MCPError(types.INTERNAL_ERROR, f"there are {STREAMS_MAX} open subscriptions already; end one first")
        stream = _Stream(ctx, wanted)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    async def _tell_session(self, name: str, session: ServerSession, notification: types.ServerNotification) -> None:
        try:
            await session.send_notification(notification)
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises for a session that is over
            self._sessions.pop(name, None)
            _log.debug("a session was not told of a change", session=name, error=str(error)[:200])


class _Stream:
    """One `subscriptions/listen` request."""

    def __init__(self, ctx: Context, wanted: types.SubscriptionFilter) -> None:
        self.meta: Json = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        self._ctx = ctx
        self._honored = types.SubscriptionFilter(
            tools_list_changed=wanted.tools_list_changed or None,
            prompts_list_changed=wanted.prompts_list_changed or None,
            resources_list_changed=wanted.resources_list_changed or None,
            resource_subscriptions=list(wanted.resource_subscriptions) if wanted.resource_subscriptions else None,
        )
        self._uris = frozenset(wanted.resource_subscriptions or ())
        self._events: asyncio.Queue[ServerEvent | None] = asyncio.Queue()

    @property
    def expects_events(self) -> bool:
        return bool(self._honored.model_dump(exclude_none=True))

    def put(self, event: ServerEvent) -> None:
        waiting = self._events.qsize()
        if waiting <= EVENTS_MAX and event_matches(self._honored, self._uris, event):
            self._events.put_nowait(event if waiting < EVENTS_MAX else None)

    async def acknowledge(self, more: Json) -> None:
        honored: Json = self._honored.model_dump(by_alias=True, mode="json", exclude_none=True)
        params: Json = {"_meta": self.meta, "notifications": {**honored, **more}}
        await send(self._ctx, Notice(method="notifications/subscriptions/acknowledged", params=params))

    async def pass_on(self) -> None:
        while (event := await self._events.get()) is not None:
            await send(self._ctx, event_to_notification(event, self.meta))


async def send(ctx: Context, notification: Any) -> None:
    """On the stream that answers this request."""
    await ctx.session.send_notification(notification, ctx.request_id)
