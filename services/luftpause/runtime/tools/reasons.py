"""Why is a tool server not connected, and what became of a call that it did not answer, in words for a person or a model?"""

import re
from typing import Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from luftpause.runtime.tools import http
from luftpause.runtime.tools.listed import socket_broke
from luftpause.runtime.tools.results import cut, printable

NO_MESSAGE: Final = re.compile(r"Failed to parse (?:JSON response|SSE message)")  # what the SDK says
SEE_HEADERS: Final = "; see its headers in the configuration"
SEE_ADDRESS: Final = "; is its url that of a streamable HTTP server (often …/mcp)? The older transport (…/sse) is not spoken here"
WHAT_TO_DO: Final = {401: SEE_HEADERS, 403: SEE_HEADERS, 404: SEE_ADDRESS, 405: SEE_ADDRESS}


def why_down(error: Exception, *, status: int, command: str | None, last_words: str, seconds_max: float) -> str:
    """`status`: with which it refused, or 0; `command`: of a stdio server; `last_words`: of its standard error; `seconds_max`: it had."""
    if status:
        return f"it answered with status {status}" + WHAT_TO_DO.get(status, "")
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    if command and isinstance(cause, FileNotFoundError | PermissionError | NotADirectoryError):
        return f"{command} can't be started: {cause.strerror}; are its command and cwd right?"
    why = f"no answer within {seconds_max:g} s" if isinstance(cause, TimeoutError) else described(cause)
    if command and isinstance(cause, MCPError) and cause.error.code == types.CONNECTION_CLOSED:
        why = f"{command} ended, or closed its output, before it was connected"
    return f"{why}; it last wrote to its standard error: {printable(last_words)}" if last_words else why


def what_broke(server: str, tool: str, error: MCPError, *, status: int, chars_max: int) -> str:
    """Of a call of `tool`; `status` as in `why_down`, `chars_max`: of the server's own words."""
    code, message = error.error.code, cut(printable(error.error.message), chars_max)
    if socket_broke(error):
        return f"the connection to the tool server {server} was lost during {tool}; it may have happened all the same"
    if code in {http.UNREACHED, http.UNANSWERED}:
        return f"the tool server {server} could not be reached ({message}); {tool} did not happen"
    if code == http.REFUSED:
        return f"the tool server {server} answered {tool} with {message}"
    if code == types.PARSE_ERROR and NO_MESSAGE.match(message):
        return f"the answer of {tool} is no MCP message; it may have happened all the same"
    if status in {401, 403}:
        return f"the tool server {server} refused with status {status}{SEE_HEADERS}"
    return message or f"{tool} failed with code {code}"


def described(error: BaseException) -> str:
    """One line that a person or a model can use."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"it is no valid {error.title}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error) or type(error).__name__
