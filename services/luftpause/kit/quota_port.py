"""What may a caller ask the rate governor, and what does it answer? One port, whether it runs in this process or another one.

Leases are named by their `want`. Durations are seconds; nothing here is a moment. Expected refusals are values.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Final, Protocol

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError

Cost = Mapping[str, float]  # units per scope
BAD_QUESTION: Final = "bad_request"  # refuses what no dataplane of ours asks


class Granted(Struct, frozen=True):
    """Call now. `fence` names this grant of the want; `level`: how far to cut the load, 0 not at all."""

    want: str
    fence: int
    expires_seconds: float
    level: int = 0


class NotNow(Struct, frozen=True):
    """Ask again after `retry_seconds`. `reason` is a stable word for metrics and people."""

    retry_seconds: float
    reason: str


class Refused(Struct, frozen=True):
    """No wait would help. `code` is stable, `message` names the mistake and the mend."""

    code: str
    message: str


class Gone(Struct, frozen=True):
    """There is no such lease (any more), or this fence is of an older grant. What the provider said counts all the same."""


class Renewed(Struct, frozen=True):
    expires_seconds: float


class Released(Struct, frozen=True):
    """All that was reserved is given back."""


class Reported(Struct, frozen=True):
    """
    What the governor read from an answer. `settled`: the lease was there and is over now.

    `limited`: the answer is a refusal by quota, of this `kind`. `retry_seconds`: a call of the lease's class has its window then; None: no
    retry would help, or none is needed.
    """

    settled: bool
    limited: bool = False
    kind: str | None = None
    retry_seconds: float | None = None


class Enabled(Struct, frozen=True):
    """The target may be called, carefully at first."""


Answer = Enabled | Granted | NotNow | Refused | Reported | Renewed | Released | Gone


class QuotaUnavailableError(LuftpauseError):
    """The governor can't be asked now. Nothing was granted."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="governor_unavailable", status=503, retry_after_s=1)


class QuotaPort(Protocol):
    """All may raise QuotaUnavailableError. `Refused` of any but `reserve` has code `unknown_target` or BAD_QUESTION."""

    async def reserve(
        self,
        target: str,
        want: str,
        *,
        caller: str,
        priority: int,
        cost: Cost | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0.0,
        retry: bool = False,
    ) -> Granted | NotNow | Refused:
        """
        Ask to call `target`, and wait up to `wait_seconds` for the answer. Whoever is cancelled meanwhile has asked for nothing.

        `cost`: None: one of each scope that counts calls. `lease_seconds`: None: as configured. `retry`: an earlier try of this call was
        refused by the provider. Asked again with the same `want`, it stays the same wish, and the same lease.
        """
        ...

    async def report(
        self,
        target: str,
        want: str,
        fence: int,
        *,
        status: int | None,
        headers: Mapping[str, str],
        body_excerpt: str = "",
        actual: Cost | None = None,
    ) -> Reported | Refused:
        """The call has its answer. `status` None: it failed without one. `actual`: what it used, where that is known."""
        ...

    async def renew(self, target: str, want: str, fence: int) -> Renewed | Gone | Refused:
        """The holder is alive."""
        ...

    async def release(self, target: str, want: str, fence: int) -> Released | Gone | Refused:
        """The call was never sent."""
        ...

    async def observe(self, target: str, *, status: int, headers: Mapping[str, str], body_excerpt: str = "") -> Reported | Refused:
        """An answer to a call that had no lease."""
        ...

    async def enable(self, target: str) -> Enabled | Refused:
        """Its bill is paid: a target that was out of credit may be used again. Of any other one nothing changes."""
        ...

    async def view(self) -> bytes:
        """The state of all targets, as JSON."""
        ...

    def events(self) -> AsyncGenerator[bytes, None]:
        """What the governor decides from now on, each as JSON; ends when the governor can't be reached any more."""
        ...
