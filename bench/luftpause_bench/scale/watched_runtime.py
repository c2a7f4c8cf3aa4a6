"""Which part of the runtime's CPU time is the journal's?

`python -m luftpause_bench.scale.watched_runtime CONFIG ANNOUNCE FIGURES`: the runtime as `luftpause runtime` runs it, whose journal is
timed: what `append` takes of the event loop's thread (encoding, checksums, handing over), and all that the writer's thread does (write,
fsync). FIGURES is written anew four times a second.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from luftpause.kit import logs
from luftpause.kit.config_file import load
from luftpause.runtime.app import serve
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_writer import Writer

PERIOD_SECONDS: Final = 0.25


class Watch:
    """CPU seconds of the journal."""

    def __init__(self) -> None:
        self.append_seconds = 0.0
        self.appends = 0
        self._writers: list[int] = []

    def install(self) -> None:
        """For all journals of this process."""
        append, run = Journal.append, Writer._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        Journal.append = self._timed(append)
        Writer._run = self._noted(run)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]

    def figures(self) -> dict[str, float]:
        writer = sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in self._writers)
        return {
            "append_seconds": self.append_seconds, "appends": self.appends, "writer_seconds": writer,
            "process_seconds": time.process_time(),
        }  # fmt: skip

    def _timed(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return append(*arguments, **named)
            finally:
                self.append_seconds += time.thread_time() - began
                self.appends += 1

        return timed

    def _noted(self, run: Callable[[Writer], None]) -> Callable[[Writer], None]:
        def noted(writer: Writer) -> None:
            ident = threading.get_ident()
            self._writers.append(ident)
            try:
                run(writer)
            finally:
                self._writers.remove(ident)  # its clock ends with it

        return noted


def _told(watch: Watch, path: Path) -> None:
    part = path.with_suffix(".part")
    while True:
        part.write_text(json.dumps(watch.figures()))
        part.replace(path)
        time.sleep(PERIOD_SECONDS)


def main(config: str, announce: str, figures: str) -> None:
    watch = Watch()
    watch.install()
    settings = load(Path(config))
    logs.setup(settings.log.level)
    threading.Thread(target=_told, args=(watch, Path(figures)), daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, announce=Path(announce)))
    os._exit(0)  # the thread that tells figures may hold the lock of stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
