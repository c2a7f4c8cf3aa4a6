"""Which limits do an answer's headers tell, in all the families that are in use?

`headers` has lower-case names; `now` is the provider's clock, epoch seconds. What cannot be read is left out; nothing raises.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from luftpause.scheduler.quota.header_values import number, seconds_until
from luftpause.scheduler.quota.samples import WINDOW_SECONDS, WITHOUT_NAME, Gathered, Sample

Headers = Mapping[str, str]
Read = Callable[[Gathered, re.Match[str], str, float], None]
_PARTS: Final = {"limit": "limit", "remaining": "remaining", "reset": "reset_seconds", "renewalperiod": "window_seconds"}
_WINDOWS: Final = "|".join(WINDOW_SECONDS)
SAMPLES_MAX: Final = 64  # a provider tells a handful
NAMES_KNOWN_MAX: Final = 256

# openai, azure, groq, cerebras, mistral, fireworks, github-models: x-ratelimit-remaining-tokens, x-ratelimit-limit-requests-day
_SUFFIXED: Final = re.compile(rf"(?:x-)?ratelimit-(limit|remaining|reset|renewalperiod)-([a-z0-9_-]{{1,64}}?)(?:-({_WINDOWS}))?", re.ASCII)
_NO_SCOPE: Final = frozenset({"type", "key", "resource", "after", "policy", "bucket", "precision"})
# linear: x-ratelimit-requests-remaining
_PREFIXED: Final = re.compile(r"x-ratelimit-([a-z0-9_-]{1,64}?)-(limit|remaining|reset)", re.ASCII)
_ANTHROPIC: Final = re.compile(
    r"anthropic-(ratelimit|priority|fast)-(requests|tokens|input-tokens|output-tokens)-(limit|remaining|reset)", re.ASCII
)  # fmt: skip
_UNIFIED: Final = re.compile(r"anthropic-ratelimit-unified-([a-z0-9_]{1,64})-(utilization|reset)", re.ASCII)
_COPILOT: Final = re.compile(r"x-(?:quota-snapshot|usage-ratelimit)-([a-z0-9_-]{1,64})", re.ASCII)
_APISIX: Final = re.compile(r"x-ai-ratelimit-(limit|remaining|reset)-([a-z0-9_.-]{1,64})", re.ASCII)
_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})")

# Fixed names: scope, then the headers of limit, rest, reset; where only the rest tells that the family is there.
_FIXED: Final = (
    ("tokens", "x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset", None),  # together
    ("tokens_minute", "x-ratelimitbysize-limit-minute", "x-ratelimitbysize-remaining-minute", "ratelimitbysize-reset", 60.0),  # mistral
    ("requests", "x-trial-endpoint-call-limit", "x-trial-endpoint-call-remaining", "", None),  # cohere
    ("requests", "x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset", None),  # x, okta
)
_SHOPIFY: Final = ("x-shopify-shop-api-call-limit", "http_x_shopify_shop_api_call_limit")


def told_limits(headers: Headers, now: float) -> Gathered:
    found = Gathered()
    for name, value in headers.items():
        if "limit" in name or "quota" in name or name.startswith("anthropic-"):
            _read_named(found, name, value, now)
    _unsuffixed(found, headers, now)
    for scope, limit, remaining, reset, window in _FIXED:
        if remaining in headers:
            found.put(scope, "limit", number(headers.get(limit)))
            found.put(scope, "remaining", number(headers[remaining]))
            found.put(scope, "reset_seconds", seconds_until(headers.get(reset), now))
            found.put(scope, "window_seconds", window)
    _used_of(found, headers)
    return found


def _read_named(found: Gathered, name: str, value: str, now: float) -> None:
    family = _family_of(name)
    if family is not None:
        read, match = family
        read(found, match, value, now)


@lru_cache(maxsize=NAMES_KNOWN_MAX)
def _family_of(name: str) -> "tuple[Read, re.Match[str]] | None":
    """Answers of a provider tell the same names again and again."""
    return next(((read, match) for pattern, read in _FAMILIES if (match := pattern.fullmatch(name))), None)


def _value(part: str, value: str, now: float) -> float | None:
    return seconds_until(value, now) if part == "reset" else number(value)


def _anthropic(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    family = "" if match[1] == "ratelimit" else f"{match[1]}_"
    found.put(family + match[2].replace("-", "_"), _PARTS[match[3]], _value(match[3], value, now))


def _unified(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    """A subscription: the used part of it, 0 to 1, as percent."""
    scope = f"unified_{match[1]}"
    if match[2] == "reset":
        found.put(scope, "reset_seconds", seconds_until(value, now))
    elif (used := number(value)) is not None:
        found.put(scope, "limit", 100.0)
        found.put(scope, "remaining", round(100.0 * (1 - used), 6))


def _copilot(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    """`ent=1500&rem=31.3&rst=...`: `rem` is percent; `ent` -1 is no limit, 0 a gauge of percents only."""
    told = {key: _unquoted(text) for key, _, text in (pair.partition("=") for pair in value.split("&"))}
    entitled, rest = number(told.get("ent")), number(told.get("rem"))
    if rest is None or (entitled is not None and entitled < 0):
        return
    scope, limit = f"copilot_{match[1]}", entitled or 100.0
    found.put(scope, "limit", limit)
    found.put(scope, "remaining", round(limit * rest / 100.0, 6))
    found.put(scope, "reset_seconds", seconds_until(told.get("rst"), now))


def _unquoted(text: str) -> str:
    """Percent codes of ASCII characters resolved."""
    return _PERCENT.sub(lambda code: chr(int(code[1], 16)), text.replace("+", " "))


def _apisix(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    found.put(f"tokens_{match[2]}", _PARTS[match[1]], _value(match[1], value, now))


def _suffixed(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    part, name, window = match.groups()
    if name in _NO_SCOPE:
        return
    scope = {"req": "requests"}.get(name, name).replace("-", "_") + (f"_{window}" if window else "")
    found.put(scope, _PARTS[part], _value(part, value, now))
    if window:
        found.put(scope, "window_seconds", WINDOW_SECONDS[window])


def _prefixed(found: Gathered, match: re.Match[str], value: str, now: float) -> None:
    found.put(match[1].replace("-", "_"), _PARTS[match[2]], _value(match[2], value, now))


_FAMILIES: Final[tuple[tuple[re.Pattern[str], Read], ...]] = (
    (_ANTHROPIC, _anthropic),
    (_UNIFIED, _unified),
    (_COPILOT, _copilot),
    (_APISIX, _apisix),
    (_SUFFIXED, _suffixed),
    (_PREFIXED, _prefixed),
)  # fmt: skip


def _unsuffixed(found: Gathered, headers: Headers, now: float) -> None:
    """GitHub, OpenRouter, Together, Discord: without a suffix it counts requests. GitHub names the resource, Discord has `reset-after`."""
    if "x-ratelimit-remaining" not in headers and "x-ratelimit-limit" not in headers:
        return
    scope = headers.get("x-ratelimit-resource", "").strip()[:64] or WITHOUT_NAME
    after = number(headers.get("x-ratelimit-reset-after"))
    found.put(scope, "limit", number(headers.get("x-ratelimit-limit")))
    found.put(scope, "remaining", number(headers.get("x-ratelimit-remaining")))
    found.put(scope, "reset_seconds", after if after is not None and after >= 0 else seconds_until(headers.get("x-ratelimit-reset"), now))


def _used_of(found: Gathered, headers: Headers) -> None:
    """Shopify: `32/40` are used."""
    for name in _SHOPIFY:
        used, _, limit = headers.get(name, "").partition("/")
        if (taken := number(used)) is not None and (most := number(limit)) is not None:
            found.put("requests", "limit", most)
            found.put("requests", "remaining", most - taken)


# ---- IETF draft-ietf-httpapi-ratelimit-headers, -00 to -10 ------------------------------------------------------

_ITEM: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[^,":]|:)+')
_PARAMETER: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[^;":]|:)+')
IETF_CHARS_MAX: Final = 2_048


def ietf_limits(headers: Headers, now: float) -> list[Sample]:
    policies = dict(_items(headers.get("ratelimit-policy", "")))
    told = headers.get("ratelimit", "")
    if told and _is_07(told):
        return _draft_07(told, policies, now)
    if told:
        return [sample for name, item in _items(told) if (sample := _draft_10(name, item, policies.get(name, {}), now))]
    return _draft_03(headers, policies, now) if "ratelimit-remaining" in headers else []


def _items(value: str) -> list[tuple[str, dict[str, str]]]:
    """The items of a list, each with its parameters; tolerant."""
    found: list[tuple[str, dict[str, str]]] = []
    for item in _ITEM.findall(value[:IETF_CHARS_MAX])[:SAMPLES_MAX]:
        bare, *parameters = _PARAMETER.findall(item.strip()) or [""]
        pairs = (parameter.strip().partition("=") for parameter in parameters)
        found.append((bare.strip().strip('"'), {key.strip(): text.strip().strip('"') for key, _, text in pairs}))
    return found


def _is_07(told: str) -> bool:
    return ";" not in told and any(part.strip().startswith(("limit=", "remaining=")) for part in told.split(","))


def _draft_10(name: str, item: dict[str, str], policy: dict[str, str], now: float) -> Sample | None:
    """`"burst";r=50;t=30` with the policy `"burst";q=100;w=60`. Without a readable `r` it is malformed, and the draft says to ignore it."""
    rest = number(item.get("r"))
    return None if rest is None else Sample(name, number(policy.get("q")), rest, seconds_until(item.get("t"), now), number(policy.get("w")))


def _draft_07(told: str, policies: dict[str, dict[str, str]], now: float) -> list[Sample]:
    """`limit=100, remaining=50, reset=30` with the policy `100;w=60`."""
    item = {key.strip(): text.strip() for key, _, text in (part.partition("=") for part in told[:IETF_CHARS_MAX].split(","))}
    window = number(policies.get(item.get("limit", ""), {}).get("w"))
    return [Sample("default", number(item.get("limit")), number(item.get("remaining")), seconds_until(item.get("reset"), now), window)]


def _draft_03(headers: Headers, policies: dict[str, dict[str, str]], now: float) -> list[Sample]:
    """Three fields; GitLab's reset is a moment. `100, 100;w=10`: the policy may stand behind the limit."""
    limits = _items(headers.get("ratelimit-limit", ""))
    limit = limits[0][0] if limits else ""
    windows = [item["w"] for _, item in limits if "w" in item] or [policies.get(limit, {}).get("w", "")]
    scope = headers.get("ratelimit-name", "").strip()[:64] or "default"
    reset = seconds_until(headers.get("ratelimit-reset"), now)
    return [Sample(scope, number(limit), number(headers["ratelimit-remaining"]), reset, number(windows[0]))]
