"""How does a service's log line look to a person who reads several services at once?"""

import contextlib
import datetime
import logging
import zlib
from collections.abc import Callable, Generator
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
LEVEL_STYLES: Final = {"warning": "yellow", "error": "bold red", "critical": "bold red", "debug": "dim"}
PREFIX_WIDTH: Final = 10
HIDDEN: Final = frozenset({"time", "level", "service", "event", "exception"})


def readable(line: str) -> tuple[str, str]:
    """Level and text of a line as the services write it (kit.logs, JSON); any other line is itself, without a level."""
    entry = _entry(line)
    if entry is None:
        return "", line
    fields = "  ".join(f"{key}={_value(value)}" for key, value in entry.items() if key not in HIDDEN)
    text = f"{_clock(entry.get('time'))} {entry['event']}"
    if fields:
        text += f"  {fields}"
    if entry.get("exception"):
        text += f"\n{entry['exception']}"
    return str(entry.get("level", "")), text


def _entry(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return entry if "event" in entry else None


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clock(time: object) -> str:
    try:
        return datetime.datetime.fromisoformat(str(time)).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except ValueError:
        return str(time or "")


class LinePrinter:
    """Prints the lines of several services, each with its name in its colour."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, name: str, line: str) -> None:
        level, text = readable(line)
        for row in text.splitlines() or [""]:
            shown = Text(f"{name:<{PREFIX_WIDTH}} │ ", style=_colour(name))
            shown.append(row, style=LEVEL_STYLES.get(level, "default"))
            with contextlib.suppress(OSError):  # the terminal may be gone: the services are still to be stopped in order
                self._console.print(shown, soft_wrap=True, highlight=False)


@contextlib.contextmanager
def own_lines(show: Callable[[str, str], None], name: str, level: str) -> Generator[None]:
    """Within the block, what this process itself logs is shown among the lines of the services, under `name`."""
    handler = _Handler(lambda line: show(name, line))
    logger = logging.getLogger("luftpause")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Handler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = getattr(record, "fields", {})
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        entry = {"time": time, "level": record.levelname.lower(), "event": record.getMessage(), **fields}
        if record.exc_info:
            entry["exception"] = logging.Formatter().formatException(record.exc_info)
        self._show(msgspec.json.encode(entry, enc_hook=str).decode())


def _colour(name: str) -> str:
    return COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]
