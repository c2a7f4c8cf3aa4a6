"""How loaded is a replica, by all the pages that say so?

A replica's own `/metrics`, or SGLang's `/v1/loads` where that says nothing; llama.cpp's `/props` adds how many slots it has. For a router
the pages named in `load_from`, whose sum counts only where every one of them could be read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.kit.config import ReplicaConfig
from luftpause.scheduler import loads_json, metrics_text, props_json
from luftpause.scheduler.core.events import Load
from luftpause.scheduler.engine_http import Answer
from luftpause.scheduler.metrics_text import Unread

SECOND_PAGE_SECONDS: Final = 60.0  # an engine that has neither page is asked for the second one this often
LOADS_PATH: Final = "/v1/loads"
PROPS_SECONDS: Final = 60.0  # llama.cpp is asked for its slots this often
PROPS_PATH: Final = "/props"

Get = Callable[[str], Awaitable[Answer]]  # of a URL

_FLAVOURS: Final[dict[str, metrics_text.Flavour]] = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llamacpp"}


class Found(Struct, frozen=True):
    """`load` None: unknown, and `problem` says why. `answered`: the pages were there, whatever they said."""

    load: Load | None
    answered: bool
    problem: str = ""
    recognised: bool = True  # whose gauges these are is known


class Loads:
    """Where one replica's load is read from. `models`, which it learns from its probe, tell its rows from those of others."""

    def __init__(self, config: ReplicaConfig, base: str, get: Get, clock: Clock) -> None:
        flavour = _FLAVOURS.get(config.load)
        models = config.models or ()
        self.models: Collection[str] = () if any("*" in model for model in models) else models  # patterns tell no rows apart
        self._asks = config.load != "none"
        self._get = get
        self._clock = clock
        self._pages = [_Page(_page_url(url), flavour) for url in config.load_from or ()]
        self._own = _Page(f"{base}/metrics", flavour)
        self._second = _Page(base + LOADS_PATH, "sglang")
        self._second_counts = False  # it was the one that answered last
        self._second_due = float("-inf")
        self._props_url = base + PROPS_PATH
        self._props_due = float("-inf")
        self._slots: int | None = None

    def anew(self) -> None:
        """The replica was away: it may have come back with other pages."""
        self._second_due = self._props_due = float("-inf")

    async def ask(self) -> Found | None:
        """None: it is configured not to be asked."""
        if not self._asks:
            return None
        if self._pages:
            return _sum(await asyncio.gather(*(self._of(page) for page in self._pages)))
        if self._second_counts:
            found = await self._of(self._second)
            self._second_counts = found.load is not None
            return found
        found = await self._of(self._own)
        if found.load is not None and self._own.flavour == "llamacpp":
            return replace(found, load=replace(found.load, slots=await self._slots_told()))
        if found.load is None and found.answered and self._may_have_second():
            return await self._or_second(found)
        return found

    async def _slots_told(self) -> int | None:
        """As last told: a page that is missing for once says nothing new."""
        if self._clock() >= self._props_due:
            self._props_due = self._clock() + PROPS_SECONDS
            answer = await self._get(self._props_url)
            if answer.status == 200 and not answer.problem:
                self._slots = props_json.slots(answer.body)
        return self._slots

    def _may_have_second(self) -> bool:
        return self._own.flavour in {None, "sglang"} and self._clock() >= self._second_due

    async def _or_second(self, first: Found) -> Found:
        found = await self._of(self._second)
        self._second_counts = found.load is not None
        if self._second_counts:
            self._own.flavour = "sglang"
            return found
        self._second_due = self._clock() + SECOND_PAGE_SECONDS
        return first

    async def _of(self, page: "_Page") -> Found:
        return page.read(await self._get(page.url), self.models)


class _Page:
    """One page, and whose gauges it was found to hold."""

    def __init__(self, url: str, flavour: metrics_text.Flavour | None) -> None:
        self.url = url
        self.flavour: metrics_text.Flavour | None = flavour

    def read(self, answer: Answer, models: Collection[str]) -> Found:
        found = self._loaded(answer, models)
        if isinstance(found, Load):
            return Found(found, answered=True)
        return Found(None, answer.status > 0, f"GET {self.url}: {found.why}", recognised=self.flavour is not None)

    def _loaded(self, answer: Answer, models: Collection[str]) -> Load | Unread:
        if answer.status != 200 or answer.problem:
            return Unread(answer.problem or f"answers {answer.status}")
        if urlsplit(self.url).path.endswith(LOADS_PATH):
            return loads_json.load(answer.body)
        text = answer.body.decode(errors="replace")
        self.flavour = self.flavour or metrics_text.recognise(text)
        return metrics_text.load(text, self.flavour, models)


def _sum(parts: list[Found]) -> Found:
    """Never of a part: a sum that lacks an engine would let in what that one can't take."""
    answered = all(part.answered for part in parts)
    for part in parts:
        if part.load is None:
            problem = part.problem if len(parts) == 1 else f"{part.problem}; without it the sum over load_from is unknown"
            return Found(None, answered, problem, part.recognised)
    loads = [part.load for part in parts if part.load is not None]
    tokens = _all([load.kv_tokens for load in loads])
    return Found(
        Load(
            running=sum(load.running for load in loads),
            waiting=sum(load.waiting for load in loads),
            kv_tokens=tokens,
            kv_used=_all([load.kv_used for load in loads]) if tokens is not None else None,
        ),
        answered,
    )


def _all(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _page_url(url: str) -> str:
    """A URL without a path means the engine's metrics page."""
    parts = urlsplit(url)
    return url if parts.path.strip("/") or parts.query else f"{parts.scheme}://{parts.netloc}/metrics"
