"""What do the fixture's tools and its prompt ask by an input-required result, and what do they make of the answers?"""

import json
from typing import Final

import mcp_types as types
from contents import Answer, Call, Tool, form, obj, sampling, text

NAME: Final = form("What is your name?", name="string")


def asks(state: str | None = None, **requests: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


async def _elicitation(call: Call) -> Answer:
    name = call.field("user_name", "name")
    return text(f"Hello, {name}!") if name else asks(user_name=NAME)


async def _sampling(call: Call) -> Answer:
    response = (call.params.input_responses or {}).get("capital_question")
    if not isinstance(response, types.CreateMessageResult):
        return asks(capital_question=sampling("What is the capital of France?"))
    return text(f"The model said: {getattr(response.content, 'text', '')}")


async def _roots(call: Call) -> Answer:
    response = (call.params.input_responses or {}).get("client_roots")
    return (
        text(f"{len(response.roots)} roots") if isinstance(response, types.ListRootsResult) else asks(client_roots=types.ListRootsRequest())
    )


async def _request_state(call: Call) -> Answer:
    if "confirm" in (call.params.input_responses or {}) and call.params.request_state == "nonce":
        return text("state-ok")
    return asks("nonce", confirm=form("Confirm?", ok="boolean"))


async def _tampered(call: Call) -> Answer:
    return (
        text(f"state-ok: {call.params.request_state}")
        if call.params.request_state
        else asks("first", confirm=form("Confirm?", ok="boolean"))
    )


async def _multiple(call: Call) -> Answer:
    wanted = {"user_name": NAME, "greeting": sampling("Greet them."), "client_roots": types.ListRootsRequest()}
    return text("All inputs received.") if wanted.keys() <= (call.params.input_responses or {}).keys() else asks("all", **wanted)


async def _rounds(call: Call) -> Answer:
    state = json.loads(call.params.request_state or '{"round": 0}')
    if state["round"] == 1 and (name := call.field("step1", "name")):
        return asks(json.dumps({"round": 2, "name": name}), step2=form("Which colour?", color="string"))
    if state["round"] == 2 and (color := call.field("step2", "color")):
        return text(f"{state['name']} likes {color}.")
    return asks('{"round": 1}', step1=NAME)


async def _capabilities(call: Call) -> Answer:
    can = call.ctx.session.client_capabilities
    requests: dict[str, types.InputRequest] = {}
    if can is None or can.sampling is not None:
        requests["sample"] = sampling("Say hello.")
    if can is None or can.elicitation is not None:
        requests["ask"] = NAME
    return asks("known", **requests)


_PREFIX: Final = "test_input_required_result_"
TOOLS: Final[dict[str, Tool]] = {
    f"{_PREFIX}elicitation": Tool(_elicitation, obj()),
    "test_streaming_elicitation": Tool(_elicitation, obj()),
    f"{_PREFIX}sampling": Tool(_sampling, obj()),
    f"{_PREFIX}list_roots": Tool(_roots, obj()),
    f"{_PREFIX}request_state": Tool(_request_state, obj()),
    f"{_PREFIX}tampered_state": Tool(_tampered, obj()),
    f"{_PREFIX}multiple_inputs": Tool(_multiple, obj()),
    f"{_PREFIX}multi_round": Tool(_rounds, obj()),
    f"{_PREFIX}capabilities": Tool(_capabilities, obj()),
}
