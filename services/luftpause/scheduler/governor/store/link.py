"""Is the shared ledger there, what has this node been told, and what has it still to tell?

Whoever asks learns from the answer whether the store has lost writes; then leases and what was left are told again. After an outage the
same, and the journal.
"""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.kit.faults import Faults
from luftpause.kit.logs import Log
from luftpause.scheduler.governor.store import claims
from luftpause.scheduler.governor.store.journal import Journal, named
from luftpause.scheduler.governor.store.port import Answer, Asked, Kept, Restore, Store, StoreDownError, StoreFaultError, Waiting
from luftpause.scheduler.governor.store.shared_target import SharedTarget
from luftpause.scheduler.quota.events import Event
from luftpause.scheduler.quota.model import Mode, State

RETRY_SECONDS: Final = 0.25
RETRY_SECONDS_MAX: Final = 2.0
FAULT_SECONDS_MAX: Final = 30.0  # after faults it is taken for down for longer each time, up to this
FAULT_QUIET_SECONDS: Final = 60.0  # until a fault is taken for a first one again
TELL_SECONDS: Final = 2 * RETRY_SECONDS_MAX  # until all nodes have come back and told what happened meanwhile

log = Log("governor")


class SharingSettings(Struct, frozen=True):
    """
    What a node does while the store is down: `soft`: grants within its safe share, `closed`: nothing, `open`: everything.

    `safe_part`: how much of its share is safe. `learning_seconds`: for so long after the store lost writes, and after an outage at most for
    so long, grants stay within the safe share too: as long as a lease. `chunk_calls`: quota for so many is taken in advance.
    """

    failure_mode: Literal["soft", "closed", "open"] = "soft"
    safe_part: float = 0.8
    chunk_calls: int = 0
    learning_seconds: float = 60.0


GOES_ON: Final = {
    "soft": "this node goes on within its safe share, P2 waits",
    "closed": "nothing is granted until it is back",
    "open": "calls are granted without it, quotas may be exceeded",
}


class Link:
    """Of one node, `node`, to `store`. `post` and `state` are the governor's."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        post: Callable[[Event], None],
        state: Callable[[], State],
        clock: Clock,
        settings: SharingSettings,
        faults: Faults,
    ) -> None:
        self.node, self.settings = node, settings
        self.targets: dict[str, SharedTarget] = {}
        self.journal = Journal(node)
        self.down_since: float | None = None
        self.outages = 0
        self.losses = 0  # of writes, by the store
        self._store, self._post, self._state, self._clock = store, post, state, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()  # there is something to tell, or the store is gone
        self._faults = faults
        self._fault_at, self._fault_seconds = -inf, RETRY_SECONDS
        self._wait = RETRY_SECONDS  # after it was lost, until the first try

    def of(self, target: str) -> SharedTarget:
        shared = self.targets.get(target)
        if shared is None:
            shared = self.targets[target] = SharedTarget(target)
        return shared

    # ---- asking

    async def ask(self, name: str, question: Asked) -> Answer:
        """With what this node knows. Raises StoreDownError."""
        try:
            return await self._ask(name, question)
        except StoreDownError:
            raise
        except Exception as error:
            self.fault(error)
            raise StoreFaultError(f"{type(error).__name__}: {error}") from error

    async def _ask(self, name: str, question: Asked) -> Answer:
        shared, state = self.of(name), self._state()
        target = state.targets.get(name)
        scopes = question.scopes or (claims.scopes_of(target, state.settings, self._clock()) if target is not None else ())
        learning = self._learning_seconds(question)
        question = replace(question, scopes=scopes, rules=claims.rules_of(state.settings), learning_seconds=learning)
        if (known := shared.known) is not None:
            question = replace(question, epoch=known.epoch, seq=known.seq, fence_max=known.fence_max)
        answer = await self._store.ask(name, question)
        if not shared.is_behind(answer) or (isinstance(question, Restore) and question.lost):
            shared.hear(answer, self._clock(), alone=self.down_since is not None)
        elif not shared.restoring:
            shared.restoring = True
            self.start(self._tell_again(shared))
        return answer

    def _learning_seconds(self, question: Asked) -> float:
        """After a mere outage little longer than it was: what was granted without the store was granted then, and all nodes tell soon."""
        most = self.settings.learning_seconds
        if not isinstance(question, Restore) or question.lost:
            return most
        return min(most, self._clock() - self.down_since + TELL_SECONDS) if self.down_since is not None else 0.0

    async def quietly(self, name: str, question: Asked) -> Answer | None:
        """None: the store is down, and that is known now."""
        try:
            return await self.ask(name, question)
        except StoreDownError as error:
            self.lose(error)
            return None

    def told_core(self, shared: SharedTarget, answer: Answer, *, anew: bool = False) -> None:
        """What it says of all nodes, unless a newer one has been heard."""
        if shared.known is not answer:
            return
        try:
            shared.told_at = self._clock()
            spare = shared.chunks.unspent(shared.told_at)
            enabled, pending = shared.hear_of_operators(answer), tuple(shared.pending)
            told = claims.told_of(shared.name, answer, shared.told_at, pending, spare=spare, anew=anew, enabled=enabled)
        except Exception as error:  # noqa: BLE001 - an answer that nobody can read is none
            self.fault(error)
        else:
            self._post(told)

    # ---- down and back

    def fault(self, error: Exception) -> None:
        """Something that was not foreseen, in the store's client or here. To be called where it is handled."""
        self._faults.note("store", error)
        again = self._clock() - self._fault_at < FAULT_QUIET_SECONDS
        self._fault_seconds = min(2 * self._fault_seconds, FAULT_SECONDS_MAX) if again else RETRY_SECONDS
        self._fault_at = self._clock()
        self.lose(StoreDownError(f"{type(error).__name__}: {error}"), wait=self._fault_seconds)

    def lose(self, error: StoreDownError, *, wait: float = RETRY_SECONDS) -> None:
        """No answer: from now on this node is alone, for `wait` seconds at least."""
        if self.down_since is None:
            self._wait = wait
            self.down_since = self._clock()
            self.outages += 1
            for shared in self.targets.values():
                if self.down_since >= shared.learning_until:  # else the same share goes on: others have not told all yet
                    shared.safe = None
            log.warning(f"the shared ledger can't be reached; {GOES_ON[self.settings.failure_mode]}", error=str(error))
            self.told()

    async def _tell_again(self, shared: SharedTarget) -> None:
        try:
            await self._restore(shared, lost=True)
        except StoreDownError as error:
            self.lose(error)
        finally:
            shared.restoring = False

    async def _restore(self, shared: SharedTarget, *, lost: bool) -> None:
        now, state = self._clock(), self._state()
        target, held = state.targets.get(shared.name), list(shared.held.values())
        if target is None:
            return
        kept = tuple(
            Kept(one.want, one.fence, one.caller, max(0.0, now - one.granted), max(0.0, lease.expires - now), named(one.cost))
            for one in held
            if one.chunk is None and (lease := target.leases.get(one.want)) is not None
        )
        chunks = tuple(
            Kept(one.want, one.fence, "", max(0.0, now - one.granted), one.until - now, named(one.lent()))
            for one in shared.chunks
            if not one.gone and now < one.until
        )
        question = Restore(
            node=self.node,
            leases=kept + chunks,
            lost=lost,
            left=claims.left_of(target, now),
            blocked_seconds=max(0.0, target.breaker.open_until - now) if lost else 0.0,
            disabled=target.breaker.mode is Mode.DISABLED,
        )
        answer = await self.ask(shared.name, question)
        if not lost and shared.is_behind(answer):
            await self._restore(shared, lost=True)
            return
        if lost:
            self.losses += 1
            log.warning("the shared ledger had lost writes: this node's leases and what was left are in it again", target=shared.name)
        for holding in held:
            holding.alone = False
        if self.down_since is None:
            self.told_core(shared, answer, anew=True)

    async def _come_back(self, since: float) -> None:
        """Try until the store has all leases and all that the journal holds."""
        wait = self._wait
        while True:
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_SECONDS_MAX)
            try:
                for shared in list(self.targets.values()):
                    shared.restoring = True
                    try:
                        await self._restore(shared, lost=False)
                    finally:
                        shared.restoring = False
                self.journal.fold()
                await self.journal.send(self._write, self._clock)
                answers = [(shared, await self.ask(shared.name, Waiting(node=self.node))) for shared in list(self.targets.values())]
            except StoreDownError:
                continue
            self.down_since = None
            for shared, answer in answers:
                self.told_core(shared, answer, anew=True)
            log.info("the shared ledger is back", seconds=round(self._clock() - since, 3))
            return

    async def _write(self, name: str, question: Asked) -> None:
        """An end of a call; whoever was declined here may have room now."""
        try:
            answer = await self.ask(name, question)
        except StoreFaultError:
            if self.journal.failed():
                log.warning("the shared ledger can't be told how a call ended; what the call had reserved counts as used", target=name)
            raise
        target = self._state().targets.get(name)
        if target is not None and target.declined and self.down_since is None:
            self.told_core(self.of(name), answer, anew=True)

    # ---- the loop

    def told(self) -> None:
        """There is something to tell."""
        self._changed.set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it run; a fault in it takes the store for down."""
        task = asyncio.get_running_loop().create_task(self.guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; a fault in it takes the store for down."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, this node goes on
            self.fault(error)

    async def endlessly(self, loop: Callable[[], Coroutine[Any, Any, None]], *, hints: bool = False) -> None:
        """Until cancelled; after a fault it begins anew. Without `hints` of others the store is as good as with them."""
        while True:
            if hints:
                with self._faults.noted("store_hints"):
                    await loop()
            else:
                await self.guarded(loop())
            await asyncio.sleep(RETRY_SECONDS_MAX)

    async def run(self) -> None:
        """Tell what is to be told, and come back after outages, until cancelled."""
        try:
            await self.endlessly(self._tell)
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self) -> None:
        while True:
            self._changed.clear()
            if self.down_since is not None:
                await self._come_back(self.down_since)
            try:
                await self.journal.send(self._write, self._clock)
            except StoreDownError as error:
                self.lose(error)
                continue
            await self._changed.wait()
