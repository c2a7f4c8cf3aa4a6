"""Which resources and prompts does the fixture have, as the conformance suite wants them?"""

import re
from typing import Any, Final

import mcp_types as types
from contents import PNG, form, image, resource
from mcp.shared.exceptions import MCPError
from questions import asks

from luftpause.runtime.mcp_app import McpServer
from luftpause.runtime.mcp_tools.caller import Context

Page = types.PaginatedRequestParams | None
Content = types.TextContent | types.ImageContent | types.EmbeddedResource

TEXTS: Final = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "It may change.",
}
BINARY: Final = "test://static-binary"
TEMPLATE: Final = "test://template/{id}/data"
PROMPTS: Final = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def server(name: str) -> McpServer:
    """With everything but tools."""
    made = McpServer(
        name,
        version="0",
        on_list_resources=_resources,
        on_list_resource_templates=_templates,
        on_read_resource=_read,
        on_list_prompts=_prompts,
        on_get_prompt=_prompt,
        on_completion=_complete,
    )
    made.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _nothing)
    made.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _nothing)
    made.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _nothing)
    return made


async def _nothing(ctx: Context, params: Any) -> types.EmptyResult:
    del ctx, params
    return types.EmptyResult()


async def _resources(ctx: Context, params: Page) -> types.ListResourcesResult:
    del ctx, params
    listed = [types.Resource(uri=uri, name=uri, mime_type="text/plain") for uri in TEXTS]
    return types.ListResourcesResult(resources=[*listed, types.Resource(uri=BINARY, name=BINARY, mime_type="image/png")])


async def _templates(ctx: Context, params: Page) -> types.ListResourceTemplatesResult:
    del ctx, params
    template = types.ResourceTemplate(uri_template=TEMPLATE, name="template", mime_type="application/json")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    found: types.TextResourceContents | types.BlobResourceContents
    if uri in TEXTS:
        found = types.TextResourceContents(uri=uri, mime_type="text/plain", text=TEXTS[uri])
    elif uri == BINARY:
        found = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif match := re.fullmatch(r"test://template/([^/]+)/data", uri):
        body = f'{{"id": "{match[1]}", "templateTest": true, "data": "Data for ID: {match[1]}"}}'
        found = types.TextResourceContents(uri=uri, mime_type="application/json", text=body)
    else:
        modern = ctx.protocol_version >= "2026-07-28"
        raise MCPError(code=types.INVALID_PARAMS if modern else -32002, message=f"there is no resource {uri}", data={"uri": uri})
    return types.ReadResourceResult(contents=[found])


async def _prompts(ctx: Context, params: Page) -> types.ListPromptsResult:
    del ctx, params
    listed = [
        types.Prompt(
            name=name,
            description="A prompt of the conformance fixture.",
            arguments=[types.PromptArgument(name=each, description="Any text.", required=True) for each in arguments],
        )
        for name, arguments in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=listed)


async def _prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult:
    del ctx
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _says(types.TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            said = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return _says(types.TextContent(text=said))
        case "test_prompt_with_embedded_resource":
            embedded = resource(given["resourceUri"], "Embedded resource content for testing.", "text/plain")
            return _says(embedded, types.TextContent(text="Please process it."))
        case "test_prompt_with_image":
            return _says(image(), types.TextContent(text="Please analyze it."))
        case "test_input_required_result_prompt":
            response = (params.input_responses or {}).get("user_context")
            if isinstance(response, types.ElicitResult) and response.content:
                return _says(types.TextContent(text=f"Use: {response.content.get('context')}"))
            return asks(user_context=form("Which context?", context="string"))
        case _:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no prompt {params.name}")


def _says(*parts: Content) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=part) for part in parts])


async def _complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    del ctx, params
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))
