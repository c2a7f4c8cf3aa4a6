"""In which details do engines differ, as a client and a probe see them?

SGLang 0.5, vLLM 0.32 and llama.cpp as captured or read in their sources; a new engine is a new row here and a page in engine_metrics.
"""

from typing import Any, Literal

from msgspec import Struct

Json = dict[str, Any]

FlavourName = Literal["sglang", "vllm", "llamacpp"]


class Refusal(Struct, frozen=True):
    """`in_stream`: for streams it comes as the first event of a 200."""

    status: int
    body: Json
    in_stream: bool = False

    def in_event(self) -> Json:
        """As an event of a stream: there all engines wrap it."""
        inner: Json = self.body.get("error") or {key: value for key, value in self.body.items() if key != "object"}
        return {"error": inner}


class Flavour(Struct, frozen=True):
    name: FlavourName
    server: str | None  # the Server header
    owned_by: str
    head_waits: bool  # the head comes with the first token, not with admission to the queue
    role_content: str | None  # content of the first chunk, beside the role
    call_id_prefix: str
    call_id_hex: int
    checks_model: bool
    health_seconds: float  # SGLang's health check generates a token and looks once a second
    choice_extra: Json  # further fields of every choice of a chunk
    usage_details: Json  # further fields of prompt_tokens_details
    fingerprint: str | None

    def error(self, status: int, message: str, kind: str, param: str | None = None) -> Json:
        match self.name:
            case "sglang":
                return {"object": "error", "message": message, "type": kind, "param": param, "code": status}
            case "vllm":
                return {"error": {"message": message, "type": kind, "param": param, "code": status}}
            case "llamacpp":
                return {"error": {"code": status, "message": message, "type": _LLAMACPP_TYPES.get(status, "server_error")}}

    def bad_request(self, message: str) -> Refusal:
        return Refusal(400, self.error(400, message, "BadRequestError"))

    def not_found(self, model: str, served: list[str]) -> Refusal:
        message = f"The model `{model}` does not exist. Valid aliases: {', '.join(served)}."
        return Refusal(404, self.error(404, message, "NotFoundError", "model"))

    def too_long(self, prompt: int, limit: int) -> Refusal:
        match self.name:
            case "sglang":
                message = f"The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)."
                return Refusal(400, self.error(400, message, "BadRequestError"))
            case "vllm":
                message = (
                    f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {prompt} input tokens, "
                    f"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
                    f"(parameter=input_tokens, value={prompt})"
                )
                return Refusal(400, self.error(400, message, "BadRequestError", "input_tokens"))
            case "llamacpp":
                message = f"request ({prompt} tokens) exceeds the available context size ({limit} tokens), try increasing it"
                error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": prompt, "n_ctx": limit}
                return Refusal(400, {"error": error})

    def queue_full(self, reason: str) -> Refusal:
        match self.name:
            case "sglang":
                outranked = "The request is aborted by a higher priority request."
                message = outranked if reason == "outranked" else "The request queue is full."
                return Refusal(503, self.error(503, message, "ServiceUnavailableError"), in_stream=True)
            case "vllm":
                message = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
                return Refusal(503, self.error(503, message, "Service Unavailable"))
            case "llamacpp":
                return Refusal(503, self.error(503, "The request queue is full.", "unavailable_error"))

    def loading(self) -> Refusal:
        return Refusal(503, self.error(503, "Loading model", "unavailable_error"))

    def stream_error(self, status: int, message: str) -> Json:
        """Within a stream all of them wrap it."""
        return {"error": {"message": message, "type": "InternalServerError", "code": status}}


_LLAMACPP_TYPES = {400: "invalid_request_error", 404: "not_found_error", 503: "unavailable_error"}

FLAVOURS: dict[str, Flavour] = {
    "sglang": Flavour(
        name="sglang",
        server=None,
        owned_by="sglang",
        head_waits=False,
        role_content="",
        call_id_prefix="call_",
        call_id_hex=24,
        checks_model=True,
        health_seconds=1.0,
        choice_extra={"logprobs": None, "matched_stop": None},
        usage_details={},
        fingerprint=None,
    ),
    "vllm": Flavour(
        name="vllm",
        server="uvicorn",
        owned_by="vllm",
        head_waits=False,
        role_content="",
        call_id_prefix="chatcmpl-tool-",
        call_id_hex=16,
        checks_model=True,
        health_seconds=0.0,
        choice_extra={"logprobs": None, "token_ids": None},
        usage_details={"created_cache_tokens": 0},
        fingerprint="vllm-0.32.0-fake",
    ),
    "llamacpp": Flavour(
        name="llamacpp",
        server="llama.cpp",
        owned_by="llamacpp",
        head_waits=True,
        role_content=None,
        call_id_prefix="",
        call_id_hex=32,
        checks_model=False,
        health_seconds=0.0,
        choice_extra={},
        usage_details={},
        fingerprint="b0-unknown",
    ),
}
