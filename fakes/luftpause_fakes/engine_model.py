"""How does a continuous-batching engine spend its time and memory on the requests it is given?

Prompts are prefilled in chunks; decode steps take longer the more requests and KV tokens they touch; admission keeps some room; a full KV
memory takes requests back. The caller owns the time: virtual in simulations, real behind HTTP.
"""

import bisect
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from luftpause_fakes.engine_model_cache import PrefixCache, Segment
from luftpause_fakes.engine_model_running import Running
from luftpause_fakes.engine_model_types import (
    EngineCounters,
    EngineParams,
    EngineRequest,
    Finished,
    Gauges,
    Output,
    Refused,
    Retracted,
    Started,
    Token,
)
from luftpause_fakes.engine_model_work import Work, order_of

__all__ = [
    "Engine", "EngineCounters", "EngineParams", "EngineRequest", "Finished", "Gauges", "Output",
    "Refused", "Retracted", "Segment", "Started", "Token",
]  # fmt: skip


class Engine:
    """Call `advance(now)` before `submit(now, …)` or `cancel(now, …)`; time never goes back.

    `slowdown` stretches the steps that begin from then on: engines that share a GPU are slower while the others work. Not `each_token`: of
    an answer's tokens only the first is told.
    """

    def __init__(self, params: EngineParams, *, each_token: bool = True) -> None:
        self.params = params
        self._each_token = each_token
        self.counters = EngineCounters()
        self.slowdown = 1.0
        self._cache = PrefixCache()
        self._waiting: list[Work] = []
        self._prefilling: list[Work] = []
        self._running = Running(params.reserve_tokens_max)
        self._by_id: dict[str, Work] = {}
        self._private = 0
        self._ratio = params.reserve_ratio
        self._arrivals = 0
        self._now = 0.0
        self._step_end: float | None = None
        self._decoding = False  # in this step
        self._chunks: tuple[tuple[Work, int], ...] = ()
        self._outputs: list[Output] = []

    # ---- what the caller does -------------------------------------------------------------------------------------

    def submit(self, now: float, request: EngineRequest) -> tuple[Refused, ...]:
        """Take a request; says which requests were refused by that, if any.

        Raises ValueError on a known id and on an empty prompt or answer.
        """
        self._at(now)
        work = self._checked(request)
        if work.prompt_tokens + work.answer_tokens > self.params.kv_tokens:
            return (self._refuse(now, request.id, "too_long"),)
        refused = self._make_room_in_queue(now, work)
        if refused and refused[0].id == request.id:
            return refused
        self._by_id[request.id] = work
        bisect.insort(self._waiting, work, key=order_of)
        self._begin_step(now)
        return refused

    def cancel(self, now: float, request_id: str) -> bool:
        """Forget a request, waiting or running; its memory is free at once. False: it has ended already, or never was."""
        self._at(now)
        work = self._by_id.pop(request_id, None)
        if work is None:
            return False
        if work in self._running:
            self._running.leave(work)
        else:
            (self._prefilling if work in self._prefilling else self._waiting).remove(work)
        self._release(work)
        self.counters.cancelled += 1
        return True

    def next_event(self) -> float | None:
        """When something will happen by itself; None: never, unless a request comes."""
        return self._now if self._outputs else self._step_end

    def advance(self, now: float) -> list[Output]:
        """Everything that happened until `now`, in order."""
        while self._step_end is not None and self._step_end <= now:
            end = self._step_end
            self._end_step(end)
            self._begin_step(end)
        self._now = max(self._now, now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def gauges(self) -> Gauges:
        inside = [*self._prefilling, *self._running]
        return Gauges(
            running=len(inside),
            waiting=len(self._waiting),
            kv_used=self.kv_used,
            kv_cached=self._cache.evictable,
            kv_tokens=self.params.kv_tokens,
            running_by_priority=dict(Counter(work.request.priority for work in inside)),
            waiting_by_priority=dict(Counter(work.request.priority for work in self._waiting)),
        )

    @property
    def kv_used(self) -> int:
        """Tokens of requests in the engine; what is only cached is not among them."""
        return self._cache.locked + self._private

    @property
    def kv_resident(self) -> int:
        return self._cache.resident + self._private

    def cached_tokens(self, prompt: Sequence[Segment]) -> int:
        """How much of this prompt a request would find cached now."""
        return self._cache.match(prompt)

    # ---- queue ----------------------------------------------------------------------------------------------------

    def _at(self, now: float) -> None:
        if now < self._now or (self._step_end is not None and self._step_end < now):
            raise ValueError(f"call advance({now}) first: the engine is at {self._now}, its next event at {self._step_end}")
        self._now = now

    def _checked(self, request: EngineRequest) -> Work:
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r} is in the engine already")
        if any(segment.tokens < 1 for segment in (*request.prompt, *request.answer)) or not request.prompt or not request.answer:
            raise ValueError(f"request {request.id!r} needs a prompt and an answer of segments with at least one token")
        self._arrivals += 1
        sign = {"off": 0, "sglang": -1, "vllm": 1}[self.params.priority]
        return Work(request, (sign * request.priority, self._arrivals))

    def _make_room_in_queue(self, now: float, work: Work) -> tuple[Refused, ...]:
        """SGLang's rule with priorities: a full queue gives up its last entry for a better one."""
        limit = self.params.waiting_max
        if limit is None or len(self._waiting) < limit or self._free_to_start():
            return ()
        worst = self._waiting[-1] if self._waiting else work
        if self.params.priority != "sglang" or worst.order[0] <= work.order[0]:
            return (self._refuse(now, work.request.id, "queue_full"),)
        self._waiting.pop()
        self._by_id.pop(worst.request.id)
        return (self._refuse(now, worst.request.id, "outranked"),)

    def _free_to_start(self) -> bool:
        """An idle engine takes a request straight from the door, whatever the length of its queue."""
        return self._step_end is None and not self._waiting

    def _refuse(self, now: float, request_id: str, reason: Literal["queue_full", "outranked", "too_long"]) -> Refused:
        self.counters.refused += 1
        return Refused(now, request_id, reason)

    # ---- admission ------------------------------------------------------------------------------------------------

    def _admit(self, now: float) -> None:
        while self._waiting and self._may_admit():
            work = self._waiting[0]
            if not self._take_memory(work):
                return
            self._waiting.pop(0)
            self._prefilling.append(work)
            self.counters.started += 1
            self.counters.prompt_tokens += work.length
            self.counters.cached_tokens += work.hit
            self._outputs.append(Started(now, work.request.id, work.cached))

    def _may_admit(self) -> bool:
        inside = len(self._running) + len(self._prefilling)
        if self.params.running_max is not None and inside >= self.params.running_max:
            return False
        return sum(work.length - work.computed for work in self._prefilling) < self.params.chunk_tokens

    def _take_memory(self, work: Work) -> bool:
        path = work.request.prompt
        found = self._cache.match(path)
        hit = min(found - found % self.params.block_tokens, work.length - 1)
        need = work.length - hit
        alone = not (self._running or self._prefilling)
        if not alone and need + self._reserved(work) > self.params.kv_tokens - self.kv_used - self._cache.unlocked(path):
            return False
        work.depth = self._cache.lock(path)
        work.hit = work.computed = hit
        self._make_room(need)
        work.private = need
        self._private += need
        return True

    def _reserved(self, work: Work) -> float:
        if self.params.family == "vllm":
            return self.params.free_share * self.params.kv_tokens
        limit = self.params.reserve_tokens_max
        others = self._running.reserve() + sum(each.reserve(limit) for each in self._prefilling)
        return work.reserve(limit) + others * self._ratio

    def _make_room(self, tokens: int) -> bool:
        missing = self.kv_resident + tokens - self.params.kv_tokens
        return missing <= 0 or self._cache.evict(missing) == missing

    # ---- steps ----------------------------------------------------------------------------------------------------

    def _begin_step(self, now: float) -> None:
        if self._step_end is not None:
            return
        self._admit(now)
        self._chunks, self._decoding = (), False
        if not (self._prefilling or self._running):
            return
        if self.params.family == "vllm":
            seconds = self._begin_mixed(now)
        elif self._prefilling:
            seconds = self.params.prefill_step_seconds + self._begin_prefill(self.params.chunk_tokens)
        else:
            seconds = self._begin_decode(now)
        self.counters.steps += 1
        self._step_end = now + seconds * self.slowdown

    def _begin_mixed(self, now: float) -> float:
        """Even a step without decoding takes what a decode step takes."""
        seconds = self._begin_decode(now) if self._running else self.params.decode_step_seconds
        return seconds + self._begin_prefill(max(1, self.params.chunk_tokens - len(self._running)))

    def _begin_prefill(self, left: int) -> float:
        most = left
        chunks: list[tuple[Work, int]] = []
        for work in self._prefilling:
            tokens = min(left, work.length - work.computed)
            chunks.append((work, tokens))
            left -= tokens
            if left == 0:
                break
        self._chunks = tuple(chunks)
        return (most - left) / self.params.prefill_tokens_per_second

    def _begin_decode(self, now: float) -> float:
        while not self._make_room(len(self._running)) and len(self._running) + len(self._prefilling) > 1:
            self._retract(now, self._victim())
        running, params = self._running, self.params
        if not running:
            return params.decode_step_seconds  # vllm: memory is full of what is being prefilled
        running.begin()
        self._private += len(running)
        self._ratio = max(params.reserve_ratio_min, self._ratio - params.reserve_ratio_decay)
        self._decoding = True
        touched = params.decode_sequence_seconds * len(running) + params.decode_kv_token_seconds * running.computed
        return params.decode_step_seconds + touched

    def _victim(self) -> Work:
        """Who is taken back: SGLang's shortest answer, vLLM's newest request of the least priority."""
        works = self._running.settled()
        if self.params.family == "vllm":
            return max(works, key=lambda work: (work.order[0], work.joined))
        return min(works, key=lambda work: (work.generated, -work.prompt_tokens, -work.order[1]))

    def _retract(self, now: float, work: Work) -> None:
        self._running.leave(work)
        self._release(work)
        bisect.insort(self._waiting, work, key=order_of)  # it came before all that wait, so it is first again
        self._ratio = min(1.0, self._ratio + self.params.reserve_ratio_retracted)
        self.counters.retracted += 1
        self._outputs.append(Retracted(now, work.request.id))

    def _end_step(self, now: float) -> None:
        self._step_end = None
        if self._decoding:
            self._end_decode(now)
        self._end_prefill(now)

    def _end_decode(self, now: float) -> None:
        complete = self._running.end()
        self.counters.generated_tokens += len(self._running)
        for work in self._running.settled() if self._each_token else complete:
            if not self._each_token:
                self._running.settle(work)
            self._told(now, work)
            if work.generated == work.answer_tokens:
                self._running.leave(work)
                self._finish(now, work)

    def _end_prefill(self, now: float) -> None:
        for work, tokens in self._chunks:
            if self._by_id.get(work.request.id) is not work:
                continue  # cancelled in this step
            work.computed += tokens
            self.counters.prefilled_tokens += tokens
            if work.computed == work.length:
                self._prefilling.remove(work)
                self._share_prompt(work)
                work.generated += 1
                self.counters.generated_tokens += 1
                self._told(now, work)
                if work.generated == work.answer_tokens:
                    self._finish(now, work)
                else:
                    self._running.join(work)

    def _share_prompt(self, work: Work) -> None:
        """From now on others find this prompt; what two requests computed at the same time is stored once."""
        _, work.depth = self._cache.insert(work.request.prompt, work.depth)
        self._private -= work.private - work.generated  # tokens generated before a retraction stay its own
        work.private = work.generated

    def _told(self, now: float, work: Work) -> None:
        if self._each_token or work.generated == 1:
            self._outputs.append(Token(now, work.request.id, work.generated))

    def _finish(self, now: float, work: Work) -> None:
        del self._by_id[work.request.id]
        # The last token was never fed back, so its KV does not exist.
        path = (*work.request.prompt, *work.request.answer)
        self._private -= work.private
        work.private = 0
        _, work.depth = self._cache.insert(path, work.depth, work.computed)
        self._cache.unlock(path, work.depth)
        self.counters.finished += 1
        self._outputs.append(Finished(now, work.request.id, work.prompt_tokens, work.cached, work.answer_tokens))

    def _release(self, work: Work) -> None:
        self._cache.unlock(work.request.prompt, work.depth)
        self._private -= work.private
        work.depth = work.private = work.computed = work.hit = 0
