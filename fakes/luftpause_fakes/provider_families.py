"""How does each family of providers limit its callers, tell them about it, and refuse?

All seconds here are those of the caller's clock; `epoch` is that clock's time of day. Shapes of headers and bodies are those that the
providers send; `scheduler.quota.headers` reads them.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote

from msgspec import Struct

from luftpause_fakes.provider_limits import HiddenSpec, Left, LimitSpec, Verdict, whole_seconds

FamilyName = Literal["github", "copilot", "openai", "azure", "anthropic"]
Headers = dict[str, str]
Json = dict[str, Any]


class Refusal(Struct, frozen=True):
    """`event`: inside a stream with status 200, instead of an answer of its own."""

    status: int
    headers: Headers
    body: Json | str
    event: Json | None = None


class Asked(Struct, frozen=True):
    """What a refusal depends on besides the limits. `status`: of refusals that have a choice, as GitHub's; 0: the family's own."""

    tokens: int
    stream: bool = False
    status: int = 0


class Family(Struct, frozen=True):
    """`cost`: units per limit, of the prompt's tokens and the most that may be answered. `settles`: limits that give back what was not."""

    limits: tuple[LimitSpec, ...]
    hidden: HiddenSpec | None
    latency_seconds: float
    cost: Callable[[int, int], dict[str, float]]
    headers: Callable[[Sequence[Left], float], Headers]
    refusal: Callable[[Verdict, Sequence[Left], float, Asked], Refusal]
    settles: tuple[str, ...] = ()


# ---- GitHub -----------------------------------------------------------------------------------------------------


def _github_headers(left: Sequence[Left], epoch: float) -> Headers:
    (core,) = left
    return {
        "x-ratelimit-limit": f"{core.limit:.0f}",
        "x-ratelimit-remaining": f"{core.remaining:.0f}",
        "x-ratelimit-used": f"{core.limit - core.remaining:.0f}",
        "x-ratelimit-reset": str(whole_seconds(epoch + core.reset_seconds)),
        "x-ratelimit-resource": core.name,
    }


def _github_refusal(verdict: Verdict, left: Sequence[Left], epoch: float, asked: Asked) -> Refusal:
    headers = _github_headers(left, epoch)
    if verdict.why == "secondary":
        headers["retry-after"] = str(whole_seconds(verdict.wait_seconds))
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    else:
        message = "API rate limit exceeded for user ID 1."
    body = {"message": message, "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}
    return Refusal(asked.status or 403, headers, body)


# ---- Copilot ----------------------------------------------------------------------------------------------------


def _copilot_headers(left: Sequence[Left], epoch: float) -> Headers:
    (plan,) = left
    resets = quote(_rfc3339(epoch + plan.reset_seconds), safe="")
    part = 100 * plan.remaining / plan.limit
    told = f"ent={plan.limit:.0f}&ov=0.0&ovPerm=false&rem={part:.1f}&rst={resets}"
    return {"x-quota-snapshot-premium_interactions": told}


def _copilot_refusal(verdict: Verdict, left: Sequence[Left], epoch: float, asked: Asked) -> Refusal:
    headers = _copilot_headers(left, epoch)
    seconds = whole_seconds(verdict.wait_seconds)
    if verdict.why == "secondary":
        headers["retry-after"] = str(seconds)
    again = f"{seconds} seconds" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    text = f"Sorry, you've hit a rate limit that restricts the number of Copilot model requests. Please try again in {again}.\n"
    return Refusal(asked.status or 429, headers, text)


# ---- OpenAI -----------------------------------------------------------------------------------------------------

_SHORT: Final = {"requests": "RPM", "tokens": "TPM"}


def _openai_headers(left: Sequence[Left], _epoch: float) -> Headers:
    told: Headers = {}
    for limit in left:
        told[f"x-ratelimit-limit-{limit.name}"] = f"{limit.limit:.0f}"
        told[f"x-ratelimit-remaining-{limit.name}"] = f"{int(limit.remaining)}"
        told[f"x-ratelimit-reset-{limit.name}"] = go_duration(limit.reset_seconds)
    return told


def _openai_refusal(verdict: Verdict, left: Sequence[Left], epoch: float, asked: Asked) -> Refusal:
    headers = _openai_headers(left, epoch)
    of = next(limit for limit in left if limit.name == verdict.limit)
    wanted = asked.tokens if of.name == "tokens" else 1
    limited = f"on {of.name} per min ({_SHORT[of.name]}): Limit {of.limit:.0f}"
    if verdict.why == "too_large":
        mend = "The input or output tokens must be reduced in order to run successfully."
        message = f"Request too large for this model in organization org-1 {limited}, Requested {wanted}. {mend}"
    else:
        headers["retry-after-ms"] = str(whole_seconds(verdict.wait_seconds * 1000))
        headers["retry-after"] = str(whole_seconds(verdict.wait_seconds))
        used = f"Used {int(of.limit - of.remaining)}, Requested {wanted}. Please try again in {go_duration(verdict.wait_seconds)}."
        message = f"Rate limit reached for this model in organization org-1 {limited}, {used}"
    return Refusal(429, headers, {"error": {"message": message, "type": of.name, "param": None, "code": "rate_limit_exceeded"}})


# ---- Azure ------------------------------------------------------------------------------------------------------


def _azure_headers(left: Sequence[Left], _epoch: float) -> Headers:
    told: Headers = {}
    for limit in left:
        told[f"x-ratelimit-limit-{limit.name}"] = f"{limit.limit:.0f}"
        told[f"x-ratelimit-remaining-{limit.name}"] = f"{int(limit.remaining)}"
        told[f"x-ratelimit-renewalperiod-{limit.name}"] = str(whole_seconds(limit.window_seconds))
        told[f"x-ratelimit-reset-{limit.name}"] = str(whole_seconds(limit.reset_seconds))
    return told


def _azure_refusal(verdict: Verdict, left: Sequence[Left], epoch: float, asked: Asked) -> Refusal:
    """Refuses streams inside them, with what is missing as a rest below nothing; tells 0 or 1 s where the window must renew first."""
    headers = _azure_headers(left, epoch)
    message = "Requests to the ChatCompletions_Create Operation have exceeded the rate limit of your current AIServices S0 pricing tier."
    if verdict.why == "too_large":
        error = {"code": "429", "message": f"{message} The request alone is larger than the limit: it must be reduced."}
        return Refusal(429, headers, {"error": error})
    if asked.stream and verdict.limit == "tokens":
        of = next(limit for limit in left if limit.name == "tokens")
        told = {
            "x-ratelimit-remaining-tokens": f"{min(-2, int(of.remaining) - asked.tokens)}",
            "x-ratelimit-reset-tokens": str(whole_seconds(of.reset_seconds)),
            "retry-after": "4",
        }
        return Refusal(200, told, {}, event={"error": {"code": "rate_limit_exceeded", "message": message, "type": "too_many_requests"}})
    if verdict.limit == "tokens":
        headers |= {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "0"}
    headers |= {"retry-after": "1", "retry-after-ms": "0", "x-ratelimit-type": verdict.limit.capitalize()}
    return Refusal(429, headers, {"error": {"code": "429", "message": message}})


# ---- Anthropic --------------------------------------------------------------------------------------------------


def _anthropic_headers(left: Sequence[Left], epoch: float) -> Headers:
    told: Headers = {}
    for limit in left:
        name = f"anthropic-ratelimit-{limit.name.replace('_', '-')}"
        told[f"{name}-limit"] = f"{limit.limit:.0f}"
        told[f"{name}-remaining"] = f"{max(0, int(limit.remaining))}"
        told[f"{name}-reset"] = _rfc3339(epoch + limit.reset_seconds)
    return told


def _anthropic_refusal(verdict: Verdict, left: Sequence[Left], epoch: float, asked: Asked) -> Refusal:
    headers = _anthropic_headers(left, epoch)
    if verdict.why == "too_large":
        message = f"{asked.tokens} tokens are more than your organization's rate limit of {verdict.limit.replace('_', ' ')} per minute."
        return Refusal(413, headers, {"type": "error", "error": {"type": "rate_limit_error", "message": message}})
    headers[f"anthropic-ratelimit-{verdict.limit.replace('_', '-')}-remaining"] = "0"  # told in whole calls and prompts of this size
    headers["retry-after"] = str(whole_seconds(verdict.wait_seconds))
    limit = next(limit for limit in left if limit.name == verdict.limit)
    message = f"This request would exceed your organization's rate limit of {limit.limit:,.0f} {limit.name.replace('_', ' ')} per minute."
    return Refusal(429, headers, {"type": "error", "error": {"type": "rate_limit_error", "message": message}})


# ---- all --------------------------------------------------------------------------------------------------------


def go_duration(seconds: float) -> str:
    """`6m0s`, `2.8s`, `12ms`, as Go writes durations; whole milliseconds, rounded up."""
    thousandths = max(0, -int(-(seconds * 1000 - 1e-6) // 1))
    if thousandths < 1000:
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    told = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + told


def _rfc3339(epoch: float) -> str:
    return datetime.fromtimestamp(whole_seconds(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _one(name: str) -> Callable[[int, int], dict[str, float]]:
    return lambda _prompt, _answer: {name: 1.0}


def _by_tokens(prompt: int, answer: int) -> dict[str, float]:
    return {"requests": 1.0, "tokens": float(prompt + answer)}


def _in_and_out(prompt: int, answer: int) -> dict[str, float]:
    return {"requests": 1.0, "input_tokens": float(prompt), "output_tokens": float(answer)}


FAMILIES: Final[dict[FamilyName, Family]] = {
    "github": Family(
        (LimitSpec("core", "fixed", 5_000, 3_600, refused_cost=1),),
        HiddenSpec(900, growth=1.6),
        0.15, _one("core"), _github_headers, _github_refusal,
    ),
    "copilot": Family(
        (LimitSpec("premium_interactions", "fixed", 80, 3_600, refused_cost=1),),
        HiddenSpec(10, penalty_seconds=30, growth=6, refused_per_step=5, penalty_seconds_max=1_800),
        6.0, _one("premium_interactions"), _copilot_headers, _copilot_refusal,
    ),
    "openai": Family(
        (LimitSpec("requests", "bucket", 5_000), LimitSpec("tokens", "bucket", 200_000)),
        None, 4.0, _by_tokens, _openai_headers, _openai_refusal,
    ),
    "azure": Family(
        (LimitSpec("requests", "fixed", 200), LimitSpec("tokens", "fixed", 200_000)),
        None, 4.0, _by_tokens, _azure_headers, _azure_refusal,
    ),
    "anthropic": Family(
        (LimitSpec("requests", "bucket", 50), LimitSpec("input_tokens", "bucket", 30_000), LimitSpec("output_tokens", "bucket", 8_000)),
        None, 4.0, _in_and_out, _anthropic_headers, _anthropic_refusal, settles=("output_tokens",),
    ),
}  # fmt: skip
