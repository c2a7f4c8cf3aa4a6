"""What does the engine model take, and what does it give back?"""

from typing import Literal

from msgspec import Struct

from luftpause_fakes.engine_model_cache import Segment

Priority = Literal["off", "sglang", "vllm"]  # sglang: higher goes first; vllm: lower goes first
Family = Literal["sglang", "vllm"]


class EngineParams(Struct, frozen=True):
    """
    One engine's speed and limits. The defaults are fit A of the published testbed: two small engines on one GPU.

    `family` sglang: prefill goes before decode; admission keeps room for answers by `reserve_ratio`; full memory retracts the shortest
    answer. vllm: a step decodes all and prefills with what is left of `chunk_tokens`; admission asks for the prompt alone and
    `free_share`; full memory preempts the newest (of the least priority), and prefixes are found by whole blocks.
    """

    prefill_tokens_per_second: float = 20_000.0
    prefill_step_seconds: float = 0.005
    decode_step_seconds: float = 0.008
    decode_sequence_seconds: float = 0.00006  # per running request and step
    decode_kv_token_seconds: float = 0.149e-6  # per KV token read and step
    chunk_tokens: int = 2048
    running_max: int | None = None
    waiting_max: int | None = None
    kv_tokens: int = 16_000
    priority: Priority = "off"
    family: Family = "sglang"
    block_tokens: int = 1  # 16 in vLLM
    free_share: float = 0.01  # vllm: of the KV memory, kept free at admission
    reserve_ratio: float = 0.7  # share of the answers' longest lengths that admission keeps free, falling while all goes well
    reserve_ratio_min: float = 0.098
    reserve_ratio_decay: float = (0.7 - 0.098) / 600  # per decode step
    reserve_ratio_retracted: float = 0.2  # added when a request had to be taken back
    reserve_tokens_max: int = 4096  # longer answers reserve no more than this


class EngineRequest(Struct, frozen=True):
    """`prompt` and `answer` are one conversation: the answer's keys continue the prompt's. The answer's tokens are what is generated."""

    id: str
    prompt: tuple[Segment, ...]
    answer: tuple[Segment, ...]
    tokens_max: int | None = None  # what the client allows, reserved at admission; None: the length of the answer
    priority: int = 0

    @property
    def prompt_tokens(self) -> int:
        return sum(segment.tokens for segment in self.prompt)

    @property
    def answer_tokens(self) -> int:
        return sum(segment.tokens for segment in self.answer)


class Started(Struct, frozen=True):
    """Admitted: prefill begins. `cached_tokens` of its prompt need no work. Comes again after a retraction."""

    at: float
    id: str
    cached_tokens: int


class Token(Struct, frozen=True):
    """The `number`th token (from 1) of its answer exists."""

    at: float
    id: str
    number: int


class Finished(Struct, frozen=True):
    at: float
    id: str
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int


class Retracted(Struct, frozen=True):
    """KV memory ran out: back to the queue; what it generated is kept, its KV is computed again."""

    at: float
    id: str


class Refused(Struct, frozen=True):
    """Not taken, or taken out of the queue for a request with a better priority. `too_long`: could never fit."""

    at: float
    id: str
    reason: Literal["queue_full", "outranked", "too_long"]


Output = Started | Token | Finished | Retracted | Refused


class EngineCounters(Struct):
    """Totals since the start."""

    started: int = 0
    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    retracted: int = 0
    prompt_tokens: int = 0  # of admitted requests, generated ones of a retracted request included
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0


class Gauges(Struct, frozen=True):
    """What an engine's metrics page tells."""

    running: int
    waiting: int
    kv_used: int
    kv_cached: int  # in memory, used by no request
    kv_tokens: int
    running_by_priority: dict[int, int]
    waiting_by_priority: dict[int, int]
