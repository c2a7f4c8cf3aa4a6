"""Do a person and a model read why a tool server is away, and what became of a call?"""

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from luftpause.runtime.tools import http
from luftpause.runtime.tools.reasons import SEE_ADDRESS, SEE_HEADERS, what_broke, why_down

CLOSED = MCPError(types.CONNECTION_CLOSED, "Connection closed")


@pytest.mark.parametrize(
    ("error", "status", "command", "words", "says"),
    [
        (ValueError("x"), 401, None, "", f"it answered with status 401{SEE_HEADERS}"),
        (ValueError("x"), 405, None, "", f"it answered with status 405{SEE_ADDRESS}"),
        (ExceptionGroup("", [ExceptionGroup("", [TimeoutError()])]), 0, None, "", "no answer within 30 s"),
        (FileNotFoundError(2, "No such file or directory"), 0, "srv", "", "srv can't be started: No such file or directory; are its"),
        (
            CLOSED,
            0,
            "srv",
            "no key",
            "srv ended, or closed its output, before it was connected; it last wrote to its standard error: no key",
        ),
        (CLOSED, 0, None, "", "Connection closed"),
        (ValueError(), 0, None, "", "ValueError"),
    ],
)
def test_why_a_server_is_away(error: Exception, status: int, command: str | None, words: str, says: str) -> None:
    assert why_down(error, status=status, command=command, last_words=words, seconds_max=30.0).startswith(says)


HAPPENED = "it may have happened all the same"


@pytest.mark.parametrize(
    ("code", "message", "status", "says"),
    [
        (http.BROKEN, "x" * 99, 0, f"the connection to the tool server s was lost during t; {HAPPENED}"),
        (http.UNREACHED, "refused", 0, "the tool server s could not be reached (refused); t did not happen"),
        (http.REFUSED, "status 429: slow down", 429, "the tool server s answered t with status 429: slow down"),
        (types.PARSE_ERROR, "Failed to parse JSON response: x", 0, f"the answer of t is no MCP message; {HAPPENED}"),
        (types.INTERNAL_ERROR, "no", 403, f"the tool server s refused with status 403{SEE_HEADERS}"),
        (-32602, "no such city", 0, "no such city"),
        (-32602, "", 0, "t failed with code -32602"),
    ],
)
def test_what_became_of_a_call(code: int, message: str, status: int, says: str) -> None:
    assert what_broke("s", "t", MCPError(code, message), status=status, chars_max=40) == says


def test_a_servers_own_words_alone_are_cut() -> None:
    told = what_broke("s", "t", MCPError(-32602, "x" * 99), status=0, chars_max=40)
    assert told == "x" * 40 + "\n[cut: the first 40 of 99 characters]"
