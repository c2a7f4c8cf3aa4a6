"""What does an error of luftpause look like to whoever sees it?"""

from typing import Any

import orjson


class LuftpauseError(Exception):
    """An error that is shown to a person or a client: says what is wrong and how to mend it.

    `code` is stable and names the cause, `status` is the HTTP status, `retry_after_s` becomes `Retry-After`.
    """

    def __init__(self, message: str, *, code: str, status: int = 500, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """The one JSON shape (spec/2 "Error semantics")."""
        return error_body(self.message, code=self.code, status=self.status)


class ConfigError(LuftpauseError):
    """The configuration can't be used; the message names path, line, what is allowed and the nearest known key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="config", status=500)


def error_type(status: int) -> str:
    """The OpenAI error `type` for an HTTP status."""
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 404:
            return "not_found_error"
        case 429:
            return "rate_limit_error"
        case _:
            return "invalid_request_error" if 400 <= status < 500 else "server_error"


def error_body(message: str, *, code: str, status: int) -> bytes:
    """
    `{"error": {"message", "type", "code"}}` as JSON bytes.

    With `"type": "error"` beside it, as clients of the Anthropic API expect it; clients of the OpenAI API look at `error` only.
    """
    error: dict[str, Any] = {"message": message, "type": error_type(status), "code": code}
    return orjson.dumps({"type": "error", "error": error})
