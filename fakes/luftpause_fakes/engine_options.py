"""What can be set on the fake engine?"""

from msgspec import Struct

from luftpause_fakes.engine_flavours import FLAVOURS, Flavour, FlavourName
from luftpause_fakes.engine_model import EngineParams
from luftpause_fakes.engine_model_types import Priority

LLAMACPP_SLOTS = 4  # where nothing is said


class EngineOptions(Struct, frozen=True):
    """
    Speeds and KV memory default to fit A (engine_model_types). `speed` 10: everything takes a tenth of the time.

    `engines` share one GPU and have ports in a row from `port` on.
    """

    host: str = "127.0.0.1"
    port: int = 8100
    engines: int = 1
    model: str = "fake-1b"
    flavour: FlavourName = "sglang"
    speed: float = 1.0
    running_max: int | None = None
    waiting_max: int | None = None
    kv_tokens: int = 16_000
    context_tokens: int | None = None  # None: as many as fit into the KV memory
    chunk_tokens: int = 2048
    prefill_tokens_per_second: float = 20_000.0
    decode_step_seconds: float = 0.008
    priority: Priority = "off"
    cache_report: bool = True  # SGLang's --enable-cache-report: cached_tokens in usage
    stream_interval: int = 1  # chunks of so many tokens are sent together
    health_seconds: float | None = None  # None: as the flavour does, divided by `speed`
    labels: tuple[str, ...] = ("negative", "neutral", "positive")  # of POST /classify
    faults: str = "{}"  # as the body of POST /_fake
    body_bytes_max: int = 64 * 1024 * 1024

    def params(self) -> EngineParams:
        return EngineParams(
            prefill_tokens_per_second=self.prefill_tokens_per_second,
            decode_step_seconds=self.decode_step_seconds,
            chunk_tokens=self.chunk_tokens,
            running_max=self.at_once,
            waiting_max=self.waiting_max,
            kv_tokens=self.kv_tokens,
            priority=self.priority,
        )

    def details(self) -> Flavour:
        return FLAVOURS[self.flavour]

    @property
    def at_once(self) -> int | None:
        """llama.cpp always has slots."""
        return LLAMACPP_SLOTS if self.flavour == "llamacpp" and self.running_max is None else self.running_max

    @property
    def context(self) -> int:
        return min(self.context_tokens or self.kv_tokens, self.kv_tokens)
