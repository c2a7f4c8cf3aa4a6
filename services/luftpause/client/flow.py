"""In which order is a call reserved, sent, judged, sent again and settled?

Sans-I/O: a generator that yields what is to be done next and is sent what came of it, so that one text serves threads and event loops.
"""

from collections.abc import Callable, Generator
from math import inf
from typing import Final

from msgspec import Struct

from luftpause.client import words
from luftpause.client.settings import Asked, Settings
from luftpause.client.words import Away, Lease, Mistaken, Never, NotYet, Question, Reply
from luftpause.kit.quota_evidence import REFUSALS, advice, limits_of

SENDINGS_MAX: Final = 4
AWAY_SECONDS: Final = 1.0  # between two tries to ask luftpause
AWAKE_SECONDS: Final = 0.05  # an answer that came so much sooner than it might have was not waited for
EVENT_STREAM: Final = "text/event-stream"

Headers = list[tuple[str, str]]
Clock = Callable[[], float]


# ---- what is to be done


class Pause(Struct, frozen=True):
    seconds: float


class Send(Struct, frozen=True):
    """Make the call, and read the body of its answer if the status is one of REFUSALS."""

    lease: Lease | None


# ---- what came of it


class Answer(Struct, frozen=True):
    """Header names as they came. `body` of one of REFUSALS as text, as far as it was read; `whole`: it was read to its end."""

    status: int
    headers: Headers
    body: str = ""
    whole: bool = False


class Unsent(Struct, frozen=True):
    """It was not sent."""

    error: Exception


class Lost(Struct, frozen=True):
    """It may have been sent; no answer came."""

    error: Exception


# ---- how it ends


class Through(Struct, frozen=True):
    """The answer is the caller's; the lease, if there is one, is to be settled when it has been read."""

    lease: Lease | None
    limits: dict[str, str]


class Kept(Struct, frozen=True):
    """The provider's refusal is the caller's. `when`: our headers in place of its own on when to come again; None: as it came."""

    when: Headers | None


class Own(Struct, frozen=True):
    """The governor's own no; the call was not made."""

    status: int
    headers: Headers
    body: bytes


class Raised(Struct, frozen=True):
    error: Exception


class Missing(Struct, frozen=True):
    """luftpause could not be asked, or not be asked so; the call was not made."""

    no: Away | Mistaken


Doing = Question | Pause | Send
Done = Reply | Away | Answer | Unsent | Lost | None
End = Through | Kept | Own | Raised | Missing
Flow = Generator[Doing, Done, End]


def flow(settings: Settings, asked: Asked, name: str, clock: Clock, *, replayable: bool) -> Flow:
    """One call. `name` is its own, no other call has it; `replayable`: its body can be sent again."""
    wait = inf if asked.wait_seconds is None else asked.wait_seconds
    give_up_at = clock() + wait
    for number in range(1, SENDINGS_MAX + 1):
        got = yield from _reserve(settings, asked, f"{name}.{number}", clock, give_up_at, retry=number > 1)
        if isinstance(got, Away) and settings.when_away == "send" and number == 1:
            return (yield from _ungoverned())
        if not isinstance(got, Lease):
            return _refused(got, again=number > 1)
        end = yield from _send(got)
        if not isinstance(end, words.Verdict):
            return end
        opens_at = inf if end.retry_seconds is None else clock() + end.retry_seconds
        if not replayable or number == SENDINGS_MAX or opens_at > give_up_at or opens_at == inf:
            return Kept(advice(end.retry_seconds))
    raise AssertionError("the last sending has ended the call")


def _reserve(
    settings: Settings, asked: Asked, name: str, clock: Clock, give_up_at: float, *, retry: bool
) -> Generator[Doing, Done, Lease | NotYet | Never | Mistaken | Away]:
    """Ask until there is an answer, or no time."""
    while True:
        began = clock()
        wait = max(0.0, min(give_up_at - began, words.POLL_SECONDS_MAX))
        reply = yield words.reserve(settings, asked, name, wait, retry=retry)
        got = words.reserved(reply) if isinstance(reply, Reply) else reply
        now = clock()
        match got:
            case NotYet(retry_seconds) if retry_seconds <= give_up_at - now:
                if now - began < wait - AWAKE_SECONDS:
                    yield Pause(retry_seconds)
            case Away() if settings.when_away == "wait" and now < give_up_at:
                yield Pause(min(AWAY_SECONDS, give_up_at - now))
            case Lease() | NotYet() | Never() | Mistaken() | Away():
                return got
            case _:
                raise TypeError(f"a question was answered by {type(got).__name__}")


def _send(lease: Lease) -> Generator[Doing, Done, Through | Kept | Raised | words.Verdict]:
    """A verdict: the provider refused by quota."""
    outcome = yield Send(lease)
    match outcome:
        case Unsent(error):
            yield words.release(lease)
            return Raised(error)
        case Lost(error):
            yield words.report(lease, None, {}, "")
            return Raised(error)
        case Answer(status, headers) if status not in REFUSALS:
            limits = limits_of(headers)
            if limits and dict(headers).get("content-type", "").startswith(EVENT_STREAM):
                yield words.observe(status, limits)
                limits = {}  # by the end of the stream they are old
            return Through(lease, limits)
        case Answer():
            reply = yield words.report(lease, outcome.status, limits_of(outcome.headers), outcome.body)
            judged = words.verdict(reply) if isinstance(reply, Reply) else words.Verdict()
            if not judged.limited:
                return Kept(None)
            return judged if outcome.whole else Kept(advice(judged.retry_seconds))
        case _:
            raise TypeError(f"a call was answered by {type(outcome).__name__}")


def _ungoverned() -> Generator[Doing, Done, Through | Raised]:
    outcome = yield Send(None)
    if isinstance(outcome, Unsent | Lost):
        return Raised(outcome.error)
    return Through(None, {})


def _refused(got: NotYet | Never | Mistaken | Away, *, again: bool) -> Kept | Own | Missing:
    """`again`: the provider has refused before, and that refusal is what the caller reads."""
    if again:
        return Kept(advice(got.retry_seconds if isinstance(got, NotYet) else None))
    match got:
        case NotYet():
            return Own(got.status, advice(got.retry_seconds), got.body)
        case Never():
            return Own(got.status, advice(None), got.body)
        case Mistaken() | Away():
            return Missing(got)
