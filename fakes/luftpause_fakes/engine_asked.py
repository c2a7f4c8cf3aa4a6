"""What does a request for a turn ask for, whatever its format?"""

from typing import Any

from msgspec import Struct

from luftpause_fakes.engine_flavours import Flavour
from luftpause_fakes.engine_model import Finished
from luftpause_fakes.engine_script import Answer

Json = dict[str, Any]


class BadRequestError(ValueError):
    """The body can't be served; the message says why. `status` 400, or 404 for something that isn't there."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Asked(Struct, frozen=True):
    """
    A turn's request with its conversation as Chat Completions has it. `tokens_max` None: as long as it likes.

    `tokens_min`: vLLM's and SGLang's `min_tokens`; the script says as much as it must then, and no more.
    """

    messages: list[Json]
    tools: list[Json] = []
    tool_choice: Any = "auto"
    schema: Json | None = None
    tokens_max: int | None = None
    tokens_min: int | None = None
    stream: bool = False
    include_usage: bool = False
    logprobs: int | None = None  # so many alternatives of each token
    priority: int = 0
    spaces: dict[str, tuple[str, str]] = {}  # tool name as the script knows it -> (namespace, name) as the client does
    store: bool = False
    previous: str = ""


class Written(Struct, frozen=True):
    """What every writer of answers knows. `usage_form` is the fault of that name."""

    flavour: Flavour
    id: str
    model: str
    created: int
    answer: Answer
    asked: Asked
    cache_report: bool
    usage_form: str = "after"

    def cached(self, finished: Finished) -> int:
        return finished.cached_tokens if self.cache_report else 0


def listed(value: Any, name: str) -> list[Json]:
    """A list of objects, or none given. Raises BadRequestError."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):  # pyright: ignore[reportUnknownVariableType]
        raise BadRequestError(f"'{name}' must be a list of objects")
    found: list[Json] = value  # pyright: ignore[reportUnknownVariableType]
    return found


def flag(asked: Json, name: str) -> bool:
    """Raises BadRequestError."""
    value = asked.get(name)
    if not isinstance(value, bool | None):
        raise BadRequestError(f"'{name}' must be true or false")
    return bool(value)


def number(asked: Json, *names: str) -> int | None:
    """The first of these fields that is a positive whole number."""
    for name in names:
        value = asked.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def priority_of(asked: Json) -> int:
    """What vLLM and SGLang read of Chat Completions, Completions and Responses; neither reads one of Messages."""
    value = asked.get("priority")
    return value if isinstance(value, int) else 0


def function(name: Any, parameters: Any, description: Any = None) -> Json:
    """A tool as Chat Completions has it."""
    return {
        "type": "function",
        "function": {"name": name, "description": description or "", "parameters": parameters or {"type": "object"}},
    }


def called(id_: Any, name: Any, arguments: Any) -> Json:
    """A tool call as Chat Completions has it."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
