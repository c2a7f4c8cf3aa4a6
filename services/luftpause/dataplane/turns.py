"""What do the dataplane's parts say to each other about a turn?

`relay` owns a turn from the request's last byte to the answer's; `link` speaks for it with the scheduler. Every method of `Scheduler` is
synchronous and never blocks: facts go into a batch, answers come back by the turn's `Waiter` callbacks, on the same loop.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

Found = Callable[[str], None]
"""Told the name of a replica, once; empty: nobody knows, or nobody can be asked."""


class TurnClass(Enum):
    INTERACTIVE = "interactive"
    BATCH = "batch"


class Kind(Enum):
    GENERATIVE = "generative"
    CLASSIFIER = "classifier"
    EMBEDDING = "embedding"


class Ask(Struct, frozen=True, gc=False):
    """A turn that wants a place: all that was read from its request (spec/1 "How a run is recognised")."""

    turn: str
    fresh_run: str
    model: str
    turn_class: TurnClass
    caller: str
    run: str = ""
    parent: str = ""
    kind: Kind = Kind.GENERATIVE
    api: str = "chat"
    tool_call_ids: tuple[str, ...] = ()  # newest first
    head_digest: bytes = b""
    previous_response: str = ""
    body_hash: bytes = b""
    traceparent: str = ""
    principal: str = ""
    body_bytes: int = 0
    priority: int = -1  # claimed, for quotas; -1: none
    answer_tokens_max: int = 0  # told only where a replica has a quota; 0: the request does not limit it


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one turn as the engine counted them; `cached` is None where it does not say."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None


class Replica(Struct, frozen=True, gc=False):
    """
    A replica as the scheduler announced it. `url` has no trailing slash and no `/v1`.

    `asks_usage`: the scheduler wants to know usage also where a client did not ask for it. `tells_limits`: and what answers say of limits;
    `holds_limits`: a refusal by quota is no answer, the turn is held again. `passes_unasked`: a single pass may go there without asking,
    where no other healthy replica serves its model.
    """

    name: str
    url: str
    models: tuple[str, ...]
    kind: Kind
    state: str  # unknown, healthy, unhealthy
    api_key: str = ""  # from this process's environment
    apis: tuple[str, ...] = ()
    asks_usage: bool = False
    tells_limits: bool = False
    holds_limits: bool = False
    passes_unasked: bool = False


class Lease(Struct, frozen=True, gc=False):
    """
    The leave to use a quota. `level`: how far to cut the load: from 1 on the answer to `answer_share` of its length, but not below
    `answer_least` tokens; from 2 on the runtime is asked to compact. `model`: what the request is to name; empty: its own.
    """

    fence: int = 0
    level: int = 0
    answer_share: float = 1.0
    answer_least: int = 0
    model: str = ""


class Placement(Struct, frozen=True, gc=False):
    """`priority`: what the request says to the engine, in that engine's sign; None: nothing. `lease`: at a replica with a quota."""

    replica: Replica
    run: str
    attempt: int
    hold_reason: str = ""
    held_ms: int = 0
    priority: int | None = None
    lease: Lease | None = None


class Refusal(Struct, frozen=True, gc=False):
    """Answered with an error by rule. `retry_after_s` 0: no `Retry-After`."""

    run: str
    status: int
    code: str
    message: str
    retry_after_s: int = 0


class ReturnReason(Enum):
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    LIMITED = "limited"


class Waiter(Protocol):
    """A turn that waits for the scheduler's word. `held` may come several times, then one of the others once per attempt."""

    def held(self, run: str, reason: str) -> None: ...

    def placed(self, placement: Placement) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...


class Scheduler(Protocol):
    """The scheduler as the dataplane sees it; `link.SessionLink` speaks gRPC, another may sit in the same process."""

    @property
    def replicas(self) -> Mapping[str, Replica]:
        """By name, as last announced."""
        ...

    @property
    def contacted(self) -> bool:
        """Was there ever a scheduler? (`GET /ready`)"""
        ...

    @property
    def connected(self) -> bool:
        """Is a session open now?"""
        ...

    @property
    def hosted(self) -> bool:
        """Has any replica a quota?"""
        ...

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        """Hold the turn until placed or refused. While disconnected it waits and is asked again after the resync."""
        ...

    def abandon(self, turn: str) -> None:
        """The client left before the turn was started (held, or just placed)."""
        ...

    def give_back(self, turn: str, reason: ReturnReason) -> None:
        """The replica did not take it and no byte went on: its waiter is asked to wait once more."""
        ...

    def started(self, turn: str) -> None: ...

    def first_token(self, turn: str) -> None: ...

    def tool_calls_seen(self, turn: str, ids: Sequence[str]) -> None:
        """At first sight, before the chunk that carries them is forwarded; leaves at once."""
        ...

    def response_seen(self, turn: str, response: str) -> None: ...

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
        """`tools`: names of those that the answer called."""
        ...

    def answer_told(self, turn: str, status: int, headers: Mapping[str, str], excerpt: str) -> None:
        """What its answer says of limits, before its end or its return. `status` of a refusal inside a 200 stream: 429."""
        ...

    def failed(self, turn: str, reason: str, usage: Usage | None = None) -> None:
        """`usage`: what the engine said of it before, if it did."""
        ...

    def end_run(self, run: str, principal: str = "") -> None: ...

    def run_of_call(self, id_: str, principal: str) -> str:
        """The run whose model made this tool call, of the answers that came by here; empty: nobody can tell."""
        ...

    def locate(self, response: str, principal: str, found: Found) -> str:
        """Ask which replica stores a response; `found` hears it once, perhaps before this returns. The result is for `unseek`."""
        ...

    def unseek(self, query: str) -> None:
        """The answer is not waited for any longer."""
        ...

    def suspect(self, replica: str, reason: str) -> None: ...

    def delivering(self, replica: str) -> None:
        """Bytes of an answer came from it (called at most once per read; cheap)."""
        ...
