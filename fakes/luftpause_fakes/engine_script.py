"""What does the fake engine answer? The same conversation always gets the same answer.

The first user message decides how many tools a run calls and how long its answer is; each tool result in the conversation counts as one
call made. Directives in the task override (engine_directives).
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import orjson
from msgspec import Struct

from luftpause_fakes.engine_directives import Directives, directives, without_directives
from luftpause_fakes.engine_schema import plausible
from luftpause_fakes.engine_text import TOKEN_CHARACTERS, message_text, text_of, tokens_of

Json = dict[str, Any]

CALLS_MAX = 3  # of a run whose task orders nothing
ANSWER_TOKENS_MIN, ANSWER_TOKENS_MAX = 30, 90
TOPIC_CHARACTERS = 80
EXCERPT_CHARACTERS = 240
_BLOCKS = re.compile(r"(?:\s*<([\w-]+)>.*?</\1>)*", re.DOTALL)  # matched at the beginning only: linear
_CLOSINGS = (
    "The sources agree on the main point.",
    "The figures should be read with care, since the sources count differently.",
    "Nothing that was found contradicts this.",
    "A later check of the oldest source would be worth the time.",
    "For the question as it was asked this is enough.",
)


class Call(Struct, frozen=True):
    """`arguments` as the model writes them: JSON, or not."""

    id: str
    name: str
    arguments: str

    def wire(self) -> Json:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Answer(Struct, frozen=True):
    text: str
    calls: tuple[Call, ...] = ()
    finish: str = "stop"

    def message(self) -> Json:
        """As an assistant message of Chat Completions, and as clients send it back."""
        calls: Json = {"tool_calls": [call.wire() for call in self.calls]} if self.calls else {}
        return {"role": "assistant", "content": self.text or None, **calls}

    def cut(self, tokens: int) -> "Answer":
        """As it ends when only so many tokens are allowed; a cut tool call shows as the text that it is."""
        if tokens_of(message_text(self.message())) <= tokens:
            return self
        raw = self.text + "".join(_in_text(call, "text") for call in self.calls)
        return Answer(raw[: tokens * TOKEN_CHARACTERS], finish="length")


class Question(Struct, frozen=True):
    """What of a request decides the answer. Ids of tool calls are `id_prefix` and `id_hex` hexadecimal digits."""

    messages: Sequence[Json]
    tools: Sequence[Json] = ()
    tool_choice: Any = "auto"
    response_schema: Json | None = None
    id_prefix: str = "call_"
    id_hex: int = 24
    ids: str | None = None  # as the directive, where the task orders none
    tokens_min: int | None = None  # the answer is as long as it must be, and no longer, where the task orders no length
    salt: str = ""  # makes ids differ between requests, as engines' ids do


def answer(question: Question) -> Answer:
    """Raises DirectiveError."""
    tasks = [text_of(message.get("content")) for message in question.messages if message.get("role") == "user"]
    ordered = directives(tasks)
    task = without_directives(tasks[0]) if tasks else ""
    seed = _seed(task)
    results = [text_of(message.get("content")) for message in question.messages if message.get("role") == "tool"]
    number = _calls_now(question, ordered, seed, len(results))
    if number:
        return _calling(question, ordered, task, len(results), number)
    if question.response_schema is not None and ordered.say is None:
        return Answer(orjson.dumps(plausible(question.response_schema, topic=_topic(task), number=0)).decode())
    text = ordered.say if ordered.say is not None else _said(task, results, seed, _length(ordered, question))
    return Answer(text, finish=ordered.finish or "stop")


def _length(ordered: Directives, question: Question) -> int | None:
    return ordered.answer if ordered.answer is not None else question.tokens_min


def _calls_now(question: Question, ordered: Directives, seed: int, made: int) -> int:
    """How many tools this turn calls."""
    if not question.tools or question.tool_choice == "none":
        return 0
    wanted = ordered.calls if ordered.calls is not None else 1 + seed % CALLS_MAX
    left = min(wanted - made, ordered.parallel or 1)
    forced = question.tool_choice == "required" or isinstance(question.tool_choice, dict)
    return max(1 if forced else 0, left)


def _calling(question: Question, ordered: Directives, task: str, made: int, number: int) -> Answer:
    calls = tuple(_call(question, ordered, task, made + each, each) for each in range(number))
    form = ordered.form or "structured"
    if form == "structured":
        return Answer(_before(calls, question.tokens_min or 0), calls, "tool_calls")
    text = "".join(_in_text(call, form) for call in calls)
    return Answer(text[: len(text) * 2 // 3], finish="length") if form == "cut" else Answer(text)


def _before(calls: tuple[Call, ...], tokens: int) -> str:
    """What is said before the calls so that all of it has so many tokens; nothing where they have enough."""
    room = tokens * TOKEN_CHARACTERS - len(message_text(Answer("", calls).message())) - 1
    number = max(0, room) // len(_CLOSINGS[0]) + 1
    return " ".join(_CLOSINGS[each % len(_CLOSINGS)] for each in range(number))[: max(0, room)]


def _call(question: Question, ordered: Directives, task: str, index: int, place: int) -> Call:
    """The run's call number `index`, at `place` of this turn."""
    tool = _chosen(question, ordered, index)
    function: Json = tool.get("function", tool)
    name = str(function.get("name"))
    schema: Json = function.get("parameters") or {"type": "object"}
    values = ordered.args if ordered.args is not None else plausible(schema, topic=_topic(task), number=index)
    arguments = orjson.dumps(values).decode()
    if index < (ordered.malformed or 0):
        arguments = arguments[:-1]
    if index < (ordered.unknown or 0):
        name += "_exact"
    return Call(_id(question, ordered, index, place), name, arguments)


def _chosen(question: Question, ordered: Directives, index: int) -> Json:
    named = _named(question.tool_choice)
    wanted = [named] if named else (ordered.tool or "").split(",")
    offered = {str(tool.get("function", tool).get("name")): tool for tool in question.tools}
    name = wanted[index % len(wanted)]
    if name in offered:
        return offered[name]
    matching = [tool for key, tool in offered.items() if name and key.endswith(name)]
    if name and not matching:
        return {"function": {"name": name}}
    readable = matching or _harmless(question.tools)
    return readable[0 if matching else index % len(readable)]


def _named(tool_choice: Any) -> str:
    """The tool that the client insists on, or nothing."""
    try:
        return str(tool_choice["function"]["name"])
    except (TypeError, KeyError):
        return ""


def _harmless(tools: Sequence[Json]) -> list[Json]:
    """Left to itself it asks, rather than deletes: the tools that take a question, else the first one."""
    asking = [tool for tool in tools if "query" in ((tool.get("function", tool).get("parameters") or {}).get("properties") or {})]
    quick = [tool for tool in asking if "lookup" in str(tool.get("function", tool).get("name"))]
    return quick or asking or list(tools[:1])


def _id(question: Question, ordered: Directives, index: int, place: int) -> str:
    match ordered.ids or question.ids:
        case None:
            digest = hashlib.blake2b(f"{question.salt} {index}".encode(), digest_size=16).hexdigest()
            return question.id_prefix + digest[: question.id_hex]
        case "count":
            return f"call_{place}"
        case "none":
            return ""
        case fixed:
            return fixed


def _in_text(call: Call, form: str) -> str:
    written = f'{{"name": {orjson.dumps(call.name).decode()}, "arguments": {call.arguments}}}'
    match form:
        case "fenced":
            return f"```json\n{written}\n```\n"
        case "bare":
            return written + "\n"
        case _:
            return f"<tool_call>\n{written}\n</tool_call>\n"


def _said(task: str, results: list[str], seed: int, tokens: int | None) -> str:
    """Sentences about the task and what the tools found. `tokens` None: as many sentences as the seed asks for, none of them cut."""
    sentences = [f"On the task “{_topic(task)}”: {'this is what the tools found' if results else 'no tool was asked'}."]
    sentences += [_excerpt(result) for result in reversed(results)]
    length = tokens if tokens is not None else ANSWER_TOKENS_MIN + seed % (ANSWER_TOKENS_MAX - ANSWER_TOKENS_MIN)
    number = 0
    while sum(len(sentence) + 1 for sentence in sentences) < length * TOKEN_CHARACTERS:
        sentences.append(_CLOSINGS[(seed + number) % len(_CLOSINGS)])
        number += 1
    text = " ".join(sentences)
    return text if tokens is None else text[: tokens * TOKEN_CHARACTERS]


def _excerpt(result: str) -> str:
    line = " ".join(result.split())
    if len(line) <= EXCERPT_CHARACTERS:
        return line if line.endswith((".", "!", "?")) else line + "."
    end = line.rfind(". ", 0, EXCERPT_CHARACTERS)
    return line[: end + 1] if end > 0 else line[:EXCERPT_CHARACTERS] + " …"


def _topic(task: str) -> str:
    """What a person asked: harnesses put blocks such as <system-reminder>…</system-reminder> before it."""
    line = " ".join((_BLOCKS.sub("", task, count=1).strip() or task).split()).rstrip(".?! ")
    if len(line) <= TOPIC_CHARACTERS:
        return line
    return line[:TOPIC_CHARACTERS].rsplit(" ", 1)[0] + " …"


def _seed(task: str) -> int:
    return int.from_bytes(hashlib.blake2b(task.encode(errors="replace"), digest_size=8).digest(), "big")
