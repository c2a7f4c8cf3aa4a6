"""What do the tools make of the arguments that clients really send?"""

from typing import Any

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.mcp_tools.arguments import Arguments, AwaitArguments, CancelArguments, SpawnArguments, StatusArguments, parse


@pytest.mark.parametrize(
    ("model", "given", "field", "value"),
    [
        (SpawnArguments, {"task": "t", "maxToolCalls": "7"}, "max_tool_calls", 7),
        (SpawnArguments, {"task": "t", "maxToolCalls": 7.0}, "max_tool_calls", 7),
        (SpawnArguments, {"task": "t", "maxToolCalls": None}, "max_tool_calls", None),
        (SpawnArguments, {"task": "t", "maxToolCalls": ""}, "max_tool_calls", None),
        (SpawnArguments, {"task": "t", "maxTokens": 0}, "max_tokens", 0),
        (SpawnArguments, {"task": "t", "tools": '["a","b_*"]'}, "tools", ["a", "b_*"]),
        (SpawnArguments, {"task": "t", "tools": "wiki_*"}, "tools", ["wiki_*"]),
        (SpawnArguments, {"task": "t", "tools": []}, "tools", []),
        (SpawnArguments, {"task": "t", "parallelToolCalls": "true"}, "parallel_tool_calls", True),
        (SpawnArguments, {"task": "t", "serviceClass": " Batch "}, "service_class", "batch"),
        (SpawnArguments, {"task": "t", "model": ""}, "model", None),
        (AwaitArguments, {"handles": "run_1"}, "handles", ["run_1"]),
        (AwaitArguments, {"handles": '["run_1", "run_2"]'}, "handles", ["run_1", "run_2"]),
        (AwaitArguments, {"handles": ["run_1"], "mode": "ANY"}, "mode", "any"),
        (AwaitArguments, {"handles": ["run_1"], "timeout": "2.5"}, "timeout", 2.5),
        (StatusArguments, {}, "handle", None),
    ],
)
def test_what_is_meant_is_taken(model: type[Arguments], given: dict[str, Any], field: str, value: Any):
    assert getattr(parse(model, "tool", given), field) == value


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (SpawnArguments, None, ["spawn: `task` is missing"]),
        (SpawnArguments, {"task": ""}, ['`task` can\'t be ""', "not empty"]),
        (SpawnArguments, {"task": ["t"]}, ['`task` can\'t be ["t"]']),
        (SpawnArguments, {"task": "t", "max_tool_calls": 1}, ["unknown argument `max_tool_calls`, did you mean `maxToolCalls`?"]),
        (SpawnArguments, {"task": "t", "budget": 1}, ["unknown argument `budget`, did you mean `budgetTokens`? (allowed: `task`,"]),
        (SpawnArguments, {"task": "t", "maxToolCalls": "many"}, ['`maxToolCalls` can\'t be "many"', "a whole number from 0 to"]),
        (SpawnArguments, {"task": "t", "maxToolCalls": -1}, ["`maxToolCalls` can't be -1"]),
        (SpawnArguments, {"task": "t", "maxToolCalls": 1.5}, ["`maxToolCalls` can't be 1.5"]),
        (SpawnArguments, {"task": "t", "maxTokens": True}, ["`maxTokens` can't be true"]),
        (SpawnArguments, {"task": "t", "tools": "[a"}, ["`tools`", "a list of tool names or globs"]),
        (SpawnArguments, {"task": "t", "tools": [1]}, ["`tools`"]),
        (SpawnArguments, {"task": "t", "serviceClass": "fast", "x": 1}, ["`interactive` or `batch`", "unknown argument `x`"]),
        (AwaitArguments, {"handles": []}, ["`handles` can't be []"]),
        (AwaitArguments, {"handles": ["r"], "mode": "some"}, ["`all` or `any`"]),
        (AwaitArguments, {"handles": ["r"], "timeout": -1}, ["`timeout` can't be -1"]),
        (AwaitArguments, {"handles": ["r"], "timeout": "inf"}, ["`timeout`"]),
        (CancelArguments, {"handle": None}, ["`handle` can't be null"]),
    ],
)
def test_what_can_not_be_meant_is_named_with_what_is_allowed(model: type[Arguments], given: dict[str, Any] | None, words: list[str]):
    with pytest.raises(LuftpauseError) as error:
        parse(model, "spawn", given)
    assert error.value.code == "bad_argument"
    assert all(word in error.value.message for word in words), error.value.message
    assert len(error.value.message) < 600
