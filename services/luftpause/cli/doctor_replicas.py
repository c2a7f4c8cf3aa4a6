"""Is each replica there, does it take its key, serve its models and tell its load?"""

import asyncio
import difflib
import os
from typing import Any, Final, cast

import httpx

from luftpause.cli.doctor_findings import Finding, fault, note, ok
from luftpause.cli.doctor_http import SKEW_SECONDS_MAX, Answer, get
from luftpause.cli.doctor_unreached import wants_tls
from luftpause.kit.clock import monotonic
from luftpause.kit.config import Config, ReplicaConfig
from luftpause.kit.model_names import is_pattern
from luftpause.kit.urls import api_at, base_url
from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.engine_http import Answer as Page
from luftpause.scheduler.loads import Loads

HINTS: Final = {
    "sglang": "start SGLang with --enable-metrics",
    "llamacpp": "start llama.cpp's server with --metrics",
    "vllm": "start vLLM without --disable-log-stats",
    "auto": "start the engine with its metrics (SGLang: --enable-metrics, llama.cpp: --metrics)",
}
MODELS_SHOWN: Final = 5


async def examine(config: Config, client: httpx.AsyncClient) -> list[Finding]:
    found = await asyncio.gather(*(_Examination(replica, client).all() for replica in config.replicas))
    served = {model for _, models in found for model in models}
    findings = [finding for findings, _ in found for finding in findings]
    wanted = config.runtime.default_model
    if wanted and served and wanted not in served and not any(is_pattern(each) for each in served):
        findings.append(fault("runtime.default_model", f"{wanted} is served by no replica{_near(wanted, served)}", "set it to one that is"))
    return findings


class _Examination:
    """One replica. `models` are those it says it serves, or is configured to."""

    def __init__(self, replica: ReplicaConfig, client: httpx.AsyncClient) -> None:
        self._replica = replica
        self._client = client
        self._base = base_url(replica.url)
        self._what = f"replica {replica.name}"
        key = os.environ.get(replica.api_key_env, "").strip() if replica.api_key_env else ""
        self._key: dict[str, str] = {"authorization": f"Bearer {key}", "x-api-key": key} if key else {}

    async def all(self) -> tuple[list[Finding], set[str]]:
        replica = self._replica
        first = await get(self._client, f"{self._base}{replica.health}" if replica.health else api_at(self._base, "/v1/models"), self._key)
        if wants_tls(first.status, first.body, self._base):
            return [fault(self._what, f"{self._base}: it speaks TLS", "write https:// in its url")], set()
        gone = self._gone(first)
        if gone is not None:
            return [gone], set()
        listed, loaded = await asyncio.gather(get(self._client, api_at(self._base, "/v1/models"), self._key), self._load())
        findings, models = self._models(listed)
        findings = [*self._health(first), *findings, *loaded, *self._clock(first)]
        if not any(finding.level == "fault" for finding in findings):
            shown = ", ".join(sorted(models)[:MODELS_SHOWN]) or "no model"
            findings.insert(0, ok(self._what, f"{self._base} serves {shown}{' …' * (len(models) > MODELS_SHOWN)}"))
        return findings, models

    def _gone(self, answer: Answer) -> Finding | None:
        if answer.status:
            return None
        usual = "start the engine, or correct the host and port in its url"
        if not answer.refused:
            usual = "is it an engine's address? Look at its log, and correct its url"
        return fault(self._what, f"{self._base}: {answer.problem}", answer.mend or usual)

    def _health(self, answer: Answer) -> list[Finding]:
        path, status = self._replica.health, answer.status
        if path is None or status < 400 or status in {401, 403}:
            return []
        if status == 404:
            return [fault(self._what, f"it has no {path}", "set `health: null`, or `health:` to the path of its health check")]
        return [fault(self._what, f"{path} answers {status}: it gets no turns", "look at the engine's log")]

    def _models(self, answer: Answer) -> tuple[list[Finding], set[str]]:
        configured = set(self._replica.models or ())
        if answer.status in {401, 403}:
            return [self._no_entry(answer.status)], configured
        data = cast("dict[str, Any]", answer.json() or {}).get("data") if answer.status == 200 else None
        if not isinstance(data, list):
            if "x-luftpause-run-id" in answer.headers or configured:
                return [], configured
            why = f"answers {answer.status}" if answer.status else answer.problem
            mend = "is this the port of an engine? If it has no such page, name its models under `models:`"
            return [fault(self._what, f"GET {api_at(self._base, '/v1/models')} {why} and no list of models", mend)], set()
        rows = [cast("dict[str, Any]", row) for row in cast("list[object]", data) if isinstance(row, dict)]
        served = {str(row.get("id")) for row in rows}
        if any(row.get("owned_by") and row.get("kind") in {"generative", "classifier"} for row in rows):
            return [fault(self._what, f"{self._base} is a luftpause proxy, not an engine", "name the engine's own address")], served
        unknown = sorted(model for model in configured if not is_pattern(model) and model not in served)
        if unknown:
            found = f"does not serve {', '.join(unknown)}{_near(unknown[0], served)}"
            return [fault(self._what, found, "correct `models:`, or leave it out: then it is asked")], served
        return [], configured or served

    def _no_entry(self, status: int) -> Finding:
        name = self._replica.api_key_env
        if name is None:
            return fault(self._what, f"wants a key ({status})", "put it into a variable, and name that in `api_key_env:`")
        if not self._key:
            return fault(self._what, f"wants a key ({status}), and {name} is not set, or empty", f"export {name}=… where the services run")
        return fault(self._what, f"refuses the key in {name} ({status})", f"correct {name}; a key of another account or service?")

    async def _load(self) -> list[Finding]:
        replica = self._replica

        async def page(url: str) -> Page:
            answer = await get(self._client, url, self._key)
            return Page(ProbeOutcome.OK if answer.status else ProbeOutcome.MISSED, answer.status, answer.body, answer.problem)

        found = await Loads(replica, self._base, page, monotonic).ask()
        if found is None or found.load is not None:
            return []
        if replica.load == "auto" and not replica.load_from and replica.health is None:
            return []  # a hosted API
        capped = (
            "its turns are capped by max_in_flight alone" if replica.max_in_flight is not None else "its turns are not limited by its load"
        )
        mend = f"{HINTS[replica.load]}; or say `load: none`, and `max_in_flight:` to cap it"
        told = fault if replica.load != "auto" or replica.max_in_flight is None else note
        return [told(self._what, f"its load can't be read ({found.problem}): {capped}", mend)]

    def _clock(self, answer: Answer) -> list[Finding]:
        return skewed(self._what, answer)


def skewed(what: str, answer: Answer) -> list[Finding]:
    seconds = answer.skew_seconds
    if abs(seconds) <= SKEW_SECONDS_MAX:
        return []
    ahead = "ahead of" if seconds > 0 else "behind"
    return [
        fault(
            what,
            f"its clock is {abs(seconds):,.0f} s {ahead} this machine's: logs and traces won't line up, and certificates may be refused",
            "let both follow a time server (`timedatectl set-ntp true`)",
        )
    ]


def _near(name: str, known: set[str]) -> str:
    small = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), small, 1)
    if close:
        return f"; did you mean {small[close[0]]}?"
    return f"; served: {', '.join(sorted(known)[:MODELS_SHOWN])}" if known else ""
