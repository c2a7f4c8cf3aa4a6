"""What does the engine model know of one request that is inside it?"""

from luftpause_fakes.engine_model_types import EngineRequest


class Work:
    """A request inside the engine. While it decodes its counts are those of its last settlement (`Running.settle`)."""

    __slots__ = (
        "answer_tokens", "begun", "computed", "depth", "ended", "generated", "hit", "joined", "order", "private", "prompt_tokens",
        "request",
    )  # fmt: skip

    def __init__(self, request: EngineRequest, order: tuple[int, int]) -> None:
        self.request = request
        self.order = order
        self.prompt_tokens = request.prompt_tokens
        self.answer_tokens = request.answer_tokens
        self.generated = 0
        self.hit = 0
        self.computed = 0  # tokens of prompt and answer so far whose KV exists
        self.private = 0  # KV tokens that only this request holds
        self.depth = 0  # locked segments of its prompt
        self.begun = self.ended = self.joined = 0  # `Running` has its own account with it

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.generated

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were found; never all of them: the last one is computed anew, after a retraction too."""
        return min(self.hit, self.prompt_tokens - 1)

    def reserve(self, limit: int) -> int:
        """Tokens that it may still generate, as admission counts them."""
        allowed = self.request.tokens_max if self.request.tokens_max is not None else self.answer_tokens
        return max(0, min(allowed, limit) - self.generated)


def order_of(work: Work) -> tuple[int, int]:
    """Where it stands in the queue: smaller goes first."""
    return work.order
