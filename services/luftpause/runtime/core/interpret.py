"""What did the model's answer ask for: which calls, under which ids, and which of them can't be made?"""

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from luftpause.runtime.core import history, loose_json
from luftpause.runtime.core.arguments import Accepted, Rejected, check, unchecked
from luftpause.runtime.core.choose import matches
from luftpause.runtime.core.events import Answered, AskedCall
from luftpause.runtime.core.model import Run
from luftpause.runtime.core.recover import recover, without_response
from luftpause.runtime.core.text import whole
from luftpause.runtime.ports import ModelAnswer, ModelCall, ToolSpec

RECOVERIES_MAX: Final = 2  # in a row
CALLS_MAX: Final = 128  # of one answer; more is a model gone wild
ID_CHARS_MAX: Final = 128
NAMES_SHOWN_MAX: Final = 50
_BAD_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")

T = TypeVar("T")


class Limit(Protocol):
    def __call__(self, work: Callable[[], T], otherwise: T) -> T:
        """What `work` returns; `otherwise` when it takes too long."""
        ...


def unlimited(work: Callable[[], T], otherwise: T) -> T:
    del otherwise
    return work()


class Interpreted(Struct, frozen=True):
    """`notes`: what a log should say, such as a tool whose schema can't be used."""

    event: Answered
    notes: tuple[str, ...] = ()


def interpret(
    run: Run, answer: ModelAnswer, offered: Mapping[str, ToolSpec], limit: Limit = unlimited, away: Mapping[str, ToolSpec] | None = None
) -> Interpreted:
    """The journal's event of an answer. `offered`: the tools of this turn; without any, calls are not looked for and text is the answer.

    `away`: tools that were offered before, and whose servers are not connected now.

    `limit` bounds what the answer or a tool's schema could make endless: then text is an answer, and arguments are not validated.
    """
    content = whole(answer.content)
    calls, recovered = answer.calls[:CALLS_MAX], False
    if not offered and not run.tools_left:
        calls = ()
    elif not calls and run.recoveries < RECOVERIES_MAX and (found := limit(lambda: recover(content, offered), None)):
        content, recovered = found.text, True
        calls = tuple(ModelCall(id="", name=call.name, arguments=call.arguments) for call in found.calls)
    elif calls:
        content = without_response(content)
    notes: list[str] = []
    taken = history.used_ids(run)
    asked: list[AskedCall] = []
    for index, call in enumerate(calls):
        call_id = _fresh_id(run, index, call, taken)
        made, note = _asked(call_id, call, offered, away or {}, answer.finish_reason, limit)
        asked.append(_with_approval(run, made, offered))
        notes += [note] if note else []
    event = Answered(
        content=content,
        calls=tuple(asked),
        finish_reason=whole(answer.finish_reason),
        recovered=recovered,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
    )
    return Interpreted(event, tuple(notes))


def _fresh_id(run: Run, index: int, call: ModelCall, taken: set[str]) -> str:
    """The engine's id where it is one, else a minted one; it is `taken` from here on."""
    call_id = whole(call.id)
    if not call_id or len(call_id) > ID_CHARS_MAX or call_id in taken:
        call_id = minted_id(run, index)
    taken.add(call_id)
    return call_id


def _asked(
    call_id: str, call: ModelCall, offered: Mapping[str, ToolSpec], away: Mapping[str, ToolSpec], finish_reason: str, limit: Limit
) -> tuple[AskedCall, str]:
    """The call, and a note for the log ("": none)."""
    name = _BAD_NAME.sub("_", whole(call.name))[:64] or "unknown"
    tool = offered.get(call.name)
    if tool is None:
        why = not_now(away[call.name]) if call.name in away else unknown_tool(call.name, offered)
        return AskedCall(call_id, name, _arguments_text(call.arguments), rejected=why), ""
    checked: Accepted | Rejected | None = limit(lambda: check(tool, call.arguments), None)
    match checked or unchecked(tool, call.arguments, "its input schema takes too long to check"):
        case Rejected(message, arguments):
            if finish_reason == "length":
                message += " Your answer was cut off at its length limit: make it shorter."
            return AskedCall(call_id, name, loose_json.dump(arguments), rejected=message), ""
        case accepted:
            note = f"{tool.name} was called unvalidated: {accepted.unvalidated}" if accepted.unvalidated else ""
            return AskedCall(call_id, name, loose_json.dump(accepted.arguments)), note


def _with_approval(run: Run, call: AskedCall, offered: Mapping[str, ToolSpec]) -> AskedCall:
    """A call that is going to be made waits for a person if its tool says so, or the spawn did."""
    tool = offered.get(call.name)
    if tool is None or call.rejected:
        return call
    named = any(matches(tool, pattern) for pattern in run.created.approve_tools)
    return replace(call, approval=True) if named or tool.needs_approval else call


def minted_id(run: Run, index: int) -> str:
    """The same for the same run, turn and place in the answer; no counter that another run could have too."""
    digest = hashlib.blake2b(f"{run.handle}/{run.turns}/{index}".encode(), digest_size=12)
    return f"call_{digest.hexdigest()}"


def not_now(tool: ToolSpec) -> str:
    """A model that reads that its tool is unknown never tries it again."""
    return f"Error: {tool.name} can't be called now: the tool server {tool.server} is not connected. Try it again later, or do without it."


def unknown_tool(name: str, offered: Mapping[str, ToolSpec]) -> str:
    """Names the offered tools, the nearest first."""
    shown = whole(name)[:64]
    if not offered:
        return f"Error: unknown tool {shown!r}. There are no tools; answer in plain text."
    return f"Error: unknown tool {shown!r}. The tools are: {nearest(name, offered)}"


def nearest(name: str, offered: Collection[str]) -> str:
    """The names of `offered` as text, those that look like `name` first."""
    folded = {each.lower(): each for each in reversed(list(offered))}
    near = [folded[each] for each in difflib.get_close_matches(whole(name)[:64].lower(), folded, n=3, cutoff=0.4)]
    names = [*near, *(each for each in offered if each not in near)]
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more


def _arguments_text(raw: object) -> str:
    """What an unknown tool was called with, as the JSON text of an object; {} if it was none."""
    try:
        value = loose_json.parse(raw) if isinstance(raw, str) else raw
        return whole(loose_json.dump(value)) if isinstance(value, dict) else "{}"
    except (ValueError, TypeError, RecursionError):
        return "{}"
