"""How does one call of a tool go to its target: with a lease, once more if it was refused, and settled whatever happens?"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from luftpause.dataplane.limits import REFUSED
from luftpause.dataplane.proxy import answers
from luftpause.dataplane.proxy.answers import Refusal
from luftpause.dataplane.proxy.headers import told_in
from luftpause.dataplane.proxy.leg import Failure, Leg
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.quota_evidence import excerpt_of, limits_of
from luftpause.kit.quota_port import Granted, NotNow, Refused, Reported

if TYPE_CHECKING:
    from luftpause.dataplane.answer_head import AnswerHead
    from luftpause.dataplane.exchange import Client, Request
    from luftpause.dataplane.proxy.proxy import Proxy, Target

SENDINGS_MAX: Final = 4
HALF_CLOSE_SECONDS_MAX: Final = 1.0  # others wait for the lease, so a client that closed its side must not keep it while nothing comes
WAITED_SECONDS: Final = 1.0  # a question whose answer comes sooner was not let wait
SOON_SECONDS: Final = 1.0  # of a longer answer the governor hears what its head says of limits while it still comes


class Wish(Struct, frozen=True, gc=False):
    """What a call wants of its target's quota. `wait_seconds`: how long it may be held in all."""

    id: str
    caller: str
    priority: int
    cost: Mapping[str, float] | None
    wait_seconds: float


class Call:
    """An `exchange.Handler`; watched by the sweep while it has a lease. `out` is the whole request for the target."""

    def __init__(self, proxy: "Proxy", conn: "Client", request: "Request", target: "Target", wish: Wish, out: bytes) -> None:
        self._proxy = proxy
        self._conn = conn
        self._method = request.head.method
        self._version = request.head.version
        self._target = target
        self._wish = wish
        self._out = out
        self._leg: Leg | None = None
        self._lease: Granted | None = None
        self._left = False  # nobody listens any more
        self._began = proxy.sweep.now
        self._give_up_at = asyncio.get_running_loop().time() + wish.wait_seconds
        self.deadline = NEVER
        conn.handler = self
        conn.half_close_seconds = min(conn.half_close_seconds, HALF_CLOSE_SECONDS_MAX)
        proxy.enter(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    # ---- the call

    async def _run(self) -> None:
        try:
            await self._go()
        except LuftpauseError as error:
            self._answer(Rejection(error.status, error.code, error.message, error.retry_after_s or 0))
        except asyncio.CancelledError:
            pass  # the client left, or the dataplane ends: nobody waits for this task
        except Exception:  # whatever it is, the client gets an answer
            self._proxy.log.exception("a proxied call failed", target=self._target.name)
            self._answer(Rejection(500, "internal", "the dataplane failed to answer; its log says why"))
        finally:
            self._settle_unknown()
            self._proxy.leave(self)

    async def _go(self) -> None:
        kept: Refusal | None = None
        for number in range(1, SENDINGS_MAX + 1):
            granted = await self._reserve(number)
            if not isinstance(granted, Granted):
                self._refuse(granted, kept)
                return
            kept = await self._send(granted, last=number == SENDINGS_MAX)
            if kept is None:
                return

    async def _reserve(self, number: int) -> Granted | NotNow | Refused:
        """As long as the call may be held; one question waits as long as the governor lets it, the next one keeps the place."""
        wish, clock = self._wish, asyncio.get_running_loop().time
        while True:
            began = clock()
            wait = max(0.0, self._give_up_at - began)
            answer = await self._proxy.port.reserve(
                self._target.name,
                f"{wish.id}.{number}",
                caller=wish.caller,
                priority=wish.priority,
                cost=wish.cost,
                wait_seconds=wait,
                retry=number > 1,
            )
            now = clock()
            if not isinstance(answer, NotNow) or answer.retry_seconds > self._give_up_at - now:
                return answer
            if now - began < min(wait, WAITED_SECONDS):
                await asyncio.sleep(answer.retry_seconds)

    async def _send(self, lease: Granted, *, last: bool) -> Refusal | None:
        """None: the client has its answer. Else the target refused by quota, and another sending may do better."""
        self._lease = lease
        self.deadline = self._proxy.sweep.now + lease.expires_seconds / 3
        self._proxy.sweep.watch(self)
        leg = self._leg = Leg(self._conn, self._method, self._version)
        leg.more = answers.held(self._proxy.sweep.now - self._began)
        self._target.pool.send(self._out, leg)
        await asyncio.wait({leg.begun})
        begun = leg.begun.result()
        if isinstance(begun, Failure):
            await self._lost(begun, leg)
            return None
        if begun is None:
            await self._follow(leg)
            return None
        return await self._judge(leg, begun, last=last)

    async def _follow(self, leg: Leg) -> None:
        """The answer passes; settle when it is over."""
        limits: Mapping[str, str] = limits_of(told_in(leg.answer.lines if leg.answer is not None else b""))
        await asyncio.wait({leg.over}, timeout=SOON_SECONDS)
        if not leg.over.done():
            if leg.answer is not None and "retry-after" not in limits:
                self._proxy.keep(self._proxy.port.observe(self._target.name, status=leg.answer.status, headers=limits))
                limits = {}  # by the end of the answer they are old
            await asyncio.wait({leg.over})
        if leg.over.result() is not None:
            self._broken(leg)
        elif leg.refusal:
            self._settle_unknown(limits)
        else:
            await self._report(leg, limits)

    async def _judge(self, leg: Leg, head: "AnswerHead", *, last: bool) -> Refusal | None:
        """An answer that may be a refusal by quota: keep it if another sending may do better, else it passes."""
        reported = await self._report(leg, limits_of(told_in(head.lines)))
        if reported is None or not reported.limited:
            leg.go(head.lines)
        elif leg.whole and not last and reported.retry_seconds is not None and self._may_wait(reported.retry_seconds):
            return Refusal(head, leg.kept(), reported.retry_seconds)
        else:
            leg.go(answers.with_advice(head.lines, reported.retry_seconds))
        await asyncio.wait({leg.over})
        if leg.over.result() is not None:
            self._broken(leg)
        return None

    def _broken(self, leg: Leg) -> None:
        """The client has part of an answer that never ends."""
        if not self._left:
            self._left = True
            self._conn.break_off(reset=leg.until_close)

    def _may_wait(self, seconds: float) -> bool:
        return asyncio.get_running_loop().time() + seconds <= self._give_up_at

    # ---- settling

    async def _report(self, leg: Leg, limits: Mapping[str, str]) -> Reported | None:
        """None: the governor can't be asked."""
        lease, head = self._take_lease(), leg.answer
        if lease is None or head is None:
            return None
        telling = self._proxy.port.report(
            self._target.name, lease.want, lease.fence, status=head.status, headers=limits, body_excerpt=leg.excerpt
        )
        reported = await asyncio.shield(self._proxy.keep(telling))  # the client may leave; what the target said counts all the same
        return reported if isinstance(reported, Reported) else None

    def _settle_unknown(self, limits: Mapping[str, str] | None = None) -> None:
        """
        The lease of a call whose answer nobody knows: given back if it was never sent, else it counts as used.

        What an answer has said of a quota before it broke off, or its client left, is told; with `limits`, what its head says of them and
        was not told.
        """
        lease, leg = self._take_lease(), self._leg
        if lease is None:
            return
        port, name = self._proxy.port, self._target.name
        if leg is not None and leg.refusal:
            self._proxy.keep(
                port.report(name, lease.want, lease.fence, status=REFUSED, headers=limits or {}, body_excerpt=excerpt_of(leg.refusal, ""))
            )
        elif leg is not None and leg.was_sent:
            self._proxy.keep(port.report(name, lease.want, lease.fence, status=None, headers={}))
        else:
            self._proxy.keep(port.release(name, lease.want, lease.fence))

    def _take_lease(self) -> Granted | None:
        lease, self._lease = self._lease, None
        self.deadline = NEVER
        self._proxy.sweep.forget(self)
        return lease

    def expire(self, now: float) -> None:
        """A third of the lease is over."""
        lease = self._lease
        self.deadline = NEVER
        if lease is not None:
            self.deadline = now + lease.expires_seconds / 3
            self._proxy.keep(self._proxy.port.renew(self._target.name, lease.want, lease.fence))

    # ---- answers of ours

    async def _lost(self, failure: Failure, leg: Leg) -> None:
        self._settle_unknown()
        self._proxy.log.warning("no answer from a target", target=self._target.name, reason=failure.reason)
        self._answer(answers.lost(self._target.name, failure, repeatable=leg.repeatable))

    def _refuse(self, refused: NotNow | Refused, kept: Refusal | None) -> None:
        """What the target said is what the client reads, where it was asked; only when to come again is ours."""
        if self._left:
            return
        self._left = True
        if kept is None:
            rejection, more = answers.refused(self._target.name, refused)
            self._conn.answer(refusal(rejection, more=self._conn.more + more, close=not self._conn.keeps, bodiless=self._method == "HEAD"))
            return
        seconds = refused.retry_seconds if isinstance(refused, NotNow) else None
        more = answers.held(self._proxy.sweep.now - self._began) + self._conn.more
        self._conn.answer(answers.whole(kept, seconds, more=more, close=not self._conn.keeps, bodiless=self._method == "HEAD"))

    def _answer(self, rejection: Rejection) -> None:
        """Unless the client has left, or has an answer already."""
        if self._left or (self._leg is not None and self._leg.passes):
            return
        self._left = True
        self._conn.answer(refusal(rejection, more=self._conn.more, close=not self._conn.keeps, bodiless=self._method == "HEAD"))

    # ---- Handler

    def client_left(self) -> None:
        self._left = True
        self._stop()

    def pause(self) -> None:
        if self._leg is not None:
            self._leg.pause()

    def resume(self) -> None:
        if self._leg is not None:
            self._leg.resume()

    def last_sign(self) -> float:
        upstream = self._leg.upstream if self._leg is not None else None
        return upstream.last_read if upstream is not None else 0.0

    # ---- the end of the dataplane

    def stop_waiting(self, rejection: Rejection) -> None:
        if self._lease is None and (self._leg is None or not self._leg.passes):
            self._answer(rejection)
            self._stop()

    def kill(self, rejection: Rejection) -> None:
        leg = self._leg
        self._conn.keeps = False
        if leg is not None and leg.passes and not leg.over.done():
            self._left = True
            self._conn.break_off(reset=leg.until_close)
        self._answer(rejection)
        self._stop()

    def _stop(self) -> None:
        if self._leg is not None:
            self._leg.abort()
        self._task.cancel()
