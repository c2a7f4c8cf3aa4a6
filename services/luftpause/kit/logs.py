"""How does a service say what happened: one line per event, human on a terminal, JSON otherwise?"""

import datetime
import logging
import os
import sys
from typing import Any, Final

import orjson

LEVELS: Final = ("debug", "info", "warning", "error")


class Log:
    """Writes events of one service; values are facts about it, never prompts, answers or keys."""

    def __init__(self, service: str) -> None:
        self._logger = logging.getLogger(f"luftpause.{service}")

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(self, level: int, event: str, fields: dict[str, object], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=exc_info)


def setup(level: str = "info", *, worker: int | None = None) -> None:
    """Send all logs of this process to stderr. `level` is one of `LEVELS`; `worker` stands on each line of one of several processes."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its C core writes lines of its own form; read at the first channel or server
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Human(worker) if sys.stderr.isatty() else _Json(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("luftpause").setLevel(level.upper())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


def _service(record: logging.LogRecord) -> str:
    return record.name.removeprefix("luftpause.")


class _Lines(logging.Formatter):
    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker


class _Human(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "  ".join(f"{key}={value}" for key, value in _fields(record).items())
        who = _service(record) if self._worker is None else f"{_service(record)}-{self._worker}"
        line = f"{time} {record.levelname:<7} {who}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return f"{line}  {fields}" if fields else line


class _Json(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": _service(record),
            **({} if self._worker is None else {"worker": self._worker}),
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
