"""Are tool calls found in text, and is text that only looks like one left alone?"""

import pytest

from luftpause.runtime.core.recover import Recovered, recover, without_response
from luftpause.runtime.core.written import WrittenCall

OFFERED = {"lookup", "add"}
CALL = '{"name": "lookup", "arguments": {"q": 1}}'
LOOKUP = WrittenCall("lookup", {"q": 1})
ADD = WrittenCall("add", {"a": 1})


@pytest.mark.parametrize(
    ("content", "text", "calls"),
    [
        (CALL, "", [LOOKUP]),
        (f"  {CALL}\n", "", [LOOKUP]),
        ('{"name": "lookup", "parameters": {"q": 1}}', "", [LOOKUP]),
        ('{"name": "lookup", "arguments": {"q": 1},}', "", [LOOKUP]),
        ('{"name": "lookup", "arguments": "{\\"q\\": 1}"}', "", [WrittenCall("lookup", '{"q": 1}')]),
        ('{"type": "function", "function": {"name": "lookup", "arguments": {"q": 1}}}', "", [LOOKUP]),
        ('{"function": "lookup", "parameters": {"q": 1}}', "", [LOOKUP]),
        ('{"tool_calls": [' + CALL + "]}", "", [LOOKUP]),
        (f'[{CALL}, {{"name": "add", "arguments": {{"a": 1}}}}]', "", [LOOKUP, ADD]),
        (f'{CALL}\n{{"name": "add", "arguments": {{"a": 1}}}}', "", [LOOKUP, ADD]),
        (f"```json\n{CALL}\n```", "", [LOOKUP]),
        (f"```\n{CALL}\n```\n\n```json\n{CALL}\n```", "", [LOOKUP, LOOKUP]),
        (f"I look it up.\n{CALL}", "I look it up.", [LOOKUP]),
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [LOOKUP]),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "", [LOOKUP, LOOKUP]),
        (f"First this.\n<tool_call>{CALL}</tool_call>\nThen that.", "First this.\n\nThen that.", [LOOKUP]),
        (
            '<tool_call>{"name": "lookup", "arguments": {"q": "</tool_call>"}}</tool_call>',
            "",
            [WrittenCall("lookup", {"q": "</tool_call>"})],
        ),
        ('<tool_call>{"name": "lookup", "arguments": {"q": 1,}}</tool_call>', "", [LOOKUP]),
        (f"```xml\n<tool_call>{CALL}</tool_call>\n```", "", [LOOKUP]),
        (
            "Well.\n<tool_call>lookup\n<arg_key>q</arg_key>\n<arg_value>a\nb</arg_value>\n<arg_key>n</arg_key><arg_value>2</arg_value>\n</tool_call>",
            "Well.",
            [WrittenCall("lookup", {"q": "a\nb", "n": "2"})],
        ),
        ("<tool_call>lookup</tool_call>", "", [WrittenCall("lookup", {})]),
        (
            "<tool_call>\n<function=lookup>\n<parameter=q>\na b\n</parameter>\n</function>\n</tool_call>",
            "",
            [WrittenCall("lookup", {"q": "a b"})],
        ),
        ('<function=lookup>{"q": 1}</function>', "", [LOOKUP]),
        ('<function=lookup>{"q": 1}', "", [LOOKUP]),
        (
            '<function_calls><invoke name="lookup"><parameter name="q">x</parameter></invoke></function_calls>',
            "",
            [WrittenCall("lookup", {"q": "x"})],
        ),
        (f"<|python_tag|>{CALL}", "", [LOOKUP]),
        (f'<|python_tag|>{CALL}; {{"name": "add", "parameters": {{"a": 1}}}}<|eom_id|>', "", [LOOKUP, ADD]),
        ('<|python_tag|>lookup.call(q="x")<|eom_id|>', "", [WrittenCall("lookup", {"q": "x"})]),
        ("[lookup(q=1)]", "", [LOOKUP]),
        (
            "```python\n[lookup(q=1), add(a=-1, b=[1, 'x'], c={'d': true})]\n```",
            "",
            [LOOKUP, WrittenCall("add", {"a": -1, "b": [1, "x"], "c": {"d": True}})],
        ),
        ("<|tool_call_start|>[lookup(q=1)]<|tool_call_end|>", "", [LOOKUP]),
        (f"[TOOL_CALLS] [{CALL}]", "", [LOOKUP]),
        ('[TOOL_CALLS]lookup[ARGS]{"q": 1}', "", [LOOKUP]),
        ('[TOOL_CALLS]lookup{"q": 1}add{"a": 1}', "", [LOOKUP, ADD]),
        (f"<think>Which one?</think>\n{CALL}", "<think>Which one?</think>", [LOOKUP]),
    ],
)
def test_a_closed_call_of_an_offered_tool_is_recovered(content: str, text: str, calls: list[WrittenCall]) -> None:
    assert recover(content, OFFERED) == Recovered(text, tuple(calls))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "The answer is 42.",
        "{}",
        "[]",
        '{"name": "lookup"}',
        '{"name": "nobody", "arguments": {}}',
        '[{"name": "lookup", "arguments": {}}, {"name": "nobody", "arguments": {}}]',
        '{"name": "lookup", "arguments": {"q": 1}',
        '<tool_call>{"name": "lookup", "arguments": {"q": 1}}',
        '<tool_call>{"name": "lookup", "arguments": {"q"</tool_call>',
        '<tool_call>{"name": "nobody", "arguments": {}}</tool_call>',
        '<function=lookup>{"q": 1',
        '<function=lookup>{"q": 1} and so on',
        "<function=lookup><parameter=q>x",
        "<tool_call>lookup\n<arg_key>q</arg_key>\n<arg_value>x</tool_call>",
        "<tool_call>nobody</tool_call>",
        '<invoke name="lookup"><parameter name="q">x</parameter>',
        "<|tool_call_start|>[lookup(q=1)]",
        "[TOOL_CALLS]",
        "[TOOL_CALLS] soon",
        "<|python_tag|>print(1)",
        "[lookup(1)]",
        "[lookup(q=open('/etc/passwd'))]",
        "[lookup(q=f'{x}')]",
        "[lookup(**x)]",
        "You write lookup(q=1).",
        f"To call a tool, write:\n```json\n{CALL}\n```\nand wait.",
        f"To call a tool, write:\n```json\n{CALL}\n```",
        f"The form is `<tool_call>{CALL}</tool_call>`.",
        f"An example:\n```\n<tool_call>{CALL}</tool_call>\n```\nThat is all.",
    ],
)
def test_anything_else_stays_an_answer(content: str) -> None:
    assert recover(content, OFFERED) is None


@pytest.mark.parametrize(
    "written",
    [
        f"<tool_call>{CALL}</tool_call><tool_response>42</tool_response>It is 42.",
        f"<tool_call>{CALL}</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>42</tool_response>It is 42.",
        f"<tool_call>{CALL}</tool_call><tool_response>42</tool_response><tool_call>{CALL}</tool_call>",
        f"[TOOL_CALLS][{CALL}][TOOL_RESULTS]42[/TOOL_RESULTS]It is 42.",
        '<function=lookup>{"q": 1}</function><|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\n42<|eot_id|>',
        "<|tool_call_start|>[lookup(q=1)]<|tool_call_end|><|tool_response_start|>42<|tool_response_end|>It is 42.",
        f"\n{CALL}\n<function_results>42</function_results>\nIt is 42.",
    ],
)
def test_a_made_up_response_and_what_is_built_on_it_are_dropped(written: str) -> None:
    assert recover(f"Let me see. {written}", OFFERED) == Recovered("Let me see.", (LOOKUP,))


@pytest.mark.parametrize("form", ["{}", "<tool_call>{}</tool_call>", "[TOOL_CALLS][{}]", "I write it.\n{}", "```json\n{}\n```"])
@pytest.mark.parametrize("mark", ["<tool_response>", "[TOOL_RESULTS]", "<|im_start|>"])
def test_what_looks_like_a_response_may_stand_in_an_argument(form: str, mark: str) -> None:
    call = CALL.replace("1", f'"what is {mark} for?"')
    found = recover(form.replace("{}", call), OFFERED)
    assert found is not None
    assert found.calls == (WrittenCall("lookup", {"q": f"what is {mark} for?"}),)


@pytest.mark.parametrize("form", [CALL, f"<tool_call>{CALL}</tool_call>", f"```json\n{CALL}\n```"])
@pytest.mark.parametrize(
    "thought", ["<think>Which?</think>", "<thinking>Which?</thinking>", "Which?\n</think>", "<think>a</think>\n<think>b</think>"]
)
def test_a_call_is_looked_for_behind_the_thoughts(thought: str, form: str) -> None:
    assert recover(f"{thought}\n{form}", OFFERED) == Recovered(thought, (LOOKUP,))


@pytest.mark.parametrize(
    "content",
    [
        f"I could write <tool_call>{CALL}</tool_call> here.\n</think>\nThe answer is 4.",
        f"<think>a</think><think>or <tool_call>{CALL}</tool_call></think>The answer is 4.",
        f"<thinking>or <tool_call>{CALL}</tool_call></thinking>The answer is 4.",
        f"~~~\n<tool_call>{CALL}</tool_call>\n~~~\nis the form.",
        f"Write ``<tool_call>{CALL}</tool_call>``.",
    ],
)
def test_what_stands_in_thoughts_or_code_is_no_call(content: str) -> None:
    assert recover(content, OFFERED) is None


def test_an_end_of_thought_in_an_argument_ends_none() -> None:
    content = '<tool_call>{"name": "lookup", "arguments": {"q": "</think>"}}</tool_call>'
    assert recover(content, OFFERED) == Recovered("", (WrittenCall("lookup", {"q": "</think>"}),))


def test_a_made_up_response_beside_an_engines_own_calls_is_dropped() -> None:
    assert without_response("I look.\n<tool_response>\n42\n</tool_response>\nIt is 42.") == "I look."
    assert without_response("The tag <tool_response> is explained there.") == "The tag <tool_response> is explained there."


def test_without_offered_tools_nothing_is_recovered() -> None:
    assert recover(CALL, set()) is None


def test_a_flood_of_markers_takes_no_time() -> None:
    assert recover("<tool_call>{" * 20_000 + CALL[:-1], OFFERED) is None
    assert recover("[" * 50_000, OFFERED) is None
    assert recover("\n{" * 50_000 + "}", OFFERED) is None
