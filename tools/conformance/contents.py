"""What do the fixture's tools answer, whose names and answers the conformance suite fixes?"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from luftpause.runtime.mcp_tools.caller import Context
from luftpause.runtime.mcp_tools.listening import Notice, send

Json = dict[str, Any]
Answer = types.CallToolResult | types.InputRequiredResult
Handler = Callable[["Call"], Awaitable[Answer]]

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
STEP_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Call:
    ctx: Context
    params: types.CallToolRequestParams

    @property
    def arguments(self) -> Json:
        return self.params.arguments or {}

    def field(self, key: str, name: str) -> Any:
        """What a form's answer says; None: it was not answered."""
        response = (self.params.input_responses or {}).get(key)
        return response.content.get(name) if isinstance(response, types.ElicitResult) and response.content else None


@dataclass(frozen=True)
class Tool:
    handler: Handler
    schema: Json
    description: str = "A tool of the conformance fixture."


def obj(**properties: str) -> Json:
    """All are required."""
    schema = optional(**properties)
    return {**schema, "required": list(properties)} if properties else schema


def optional(**properties: str) -> Json:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


def text(said: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=said)], is_error=failed)


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def resource(uri: str, body: str, kind: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=kind, text=body))


def form(message: str, **properties: str) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=obj(**properties)))


def sampling(said: str, tokens: int = 50) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=said))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=tokens))


def _content(*parts: Any) -> Handler:
    async def answer(_: Call) -> Answer:
        return types.CallToolResult(content=list(parts))

    return answer


def _text(said: str, *, failed: bool = False) -> Handler:
    async def answer(_: Call) -> Answer:
        return text(said, failed=failed)

    return answer


async def _greet(call: Call) -> Answer:
    return text(f"Hello, {call.arguments.get('name')}!")


async def _logging(call: Call) -> Answer:
    taken = "info" in allowed_log_levels(call.ctx.protocol_version, call.ctx.meta)
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if taken:
            await send(call.ctx, Notice(method="notifications/message", params={"level": "info", "data": step}))
        await asyncio.sleep(STEP_SECONDS)
    return text("logged")


async def _progress(call: Call) -> Answer:
    for step in (0, 50, 100):
        await call.ctx.session.report_progress(step, 100, f"step {step}")
        await asyncio.sleep(STEP_SECONDS)
    return text("done")


async def _reconnection(call: Call) -> Answer:
    if call.ctx.close_sse_stream is not None:
        await call.ctx.close_sse_stream()
    await asyncio.sleep(4 * STEP_SECONDS)
    return text("Reconnection test completed")


async def _header(call: Call) -> Answer:
    return text(str(call.arguments.get("region", "none")))


async def _missing_capability(call: Call) -> Answer:
    capabilities = call.ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data: Json = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message="this tool needs sampling", data=data)
    return text("sampling is there")


# ---- questions within a session ----------------------------------------------------------------------------------


async def _sampling(call: Call) -> Answer:
    metadata = ServerMessageMetadata(related_request_id=call.ctx.request_id)
    asked = sampling(str(call.arguments["prompt"]), 100)
    answer = await call.ctx.session.send_request(asked, types.CreateMessageResult, metadata=metadata)
    return text(f"LLM response: {getattr(answer.content, 'text', '')}")


def _elicits(said: str, schema: Json) -> Handler:
    async def answer(call: Call) -> Answer:
        message = str(call.arguments.get("message", "Please fill this in."))
        result = await call.ctx.session.elicit_form(message, schema, call.ctx.request_id)
        return text(f"{said}: action={result.action}, content={result.content or {}}")

    return answer


_DEFAULTS: Final[Json] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
_OPTIONS: Final = ["option1", "option2", "option3"]
_TITLED: Final = [{"const": f"value{number}", "title": f"Value {number}"} for number in (1, 2, 3)]
_ENUMS: Final[Json] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    },
    "required": [],
}
_JSON_SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_REGION: Final[Json] = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

TOOLS: Final[dict[str, Tool]] = {
    "greet": Tool(_greet, obj(name="string")),
    "test_simple_text": Tool(_text("This is a simple text response for testing."), obj()),
    "test_image_content": Tool(_content(image()), obj()),
    "test_audio_content": Tool(_content(types.AudioContent(data=WAV, mime_type="audio/wav")), obj()),
    "test_embedded_resource": Tool(
        _content(resource("test://embedded-resource", "This is an embedded resource content.", "text/plain")), obj()
    ),
    "test_multiple_content_types": Tool(
        _content(
            types.TextContent(text="Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
        ),
        obj(),
    ),
    "test_tool_with_logging": Tool(_logging, obj()),
    "test_logging_tool": Tool(_logging, obj()),
    "test_tool_with_progress": Tool(_progress, obj()),
    "test_error_handling": Tool(_text("This tool intentionally returns an error for testing", failed=True), obj()),
    "test_reconnection": Tool(_reconnection, obj()),
    "test_x_mcp_header": Tool(_header, _REGION),
    "test_missing_capability": Tool(_missing_capability, obj()),
    "test_sampling": Tool(_sampling, obj(prompt="string")),
    "test_elicitation": Tool(_elicits("User response", obj(response="string")), obj(message="string")),
    "test_elicitation_sep1034_defaults": Tool(_elicits("Elicitation completed", _DEFAULTS), obj()),
    "test_elicitation_sep1330_enums": Tool(_elicits("Elicitation completed", _ENUMS), obj()),
    "json_schema_2020_12_tool": Tool(_text("ok"), _JSON_SCHEMA),
}
