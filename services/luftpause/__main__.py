"""How does the program start, so that Ctrl-C ends it without a traceback from its first import on, and end with its own exit status?"""

import errno
import os
import sys
from typing import Final, TextIO

GONE: Final = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})  # a pipe or a terminal that nobody reads any more


def main() -> None:
    """`luftpause` and `python -m luftpause`."""
    try:
        from luftpause.cli.app import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        for stream in (sys.stdout, sys.stderr):
            _let_go(stream)


def _let_go(stream: TextIO | None) -> None:
    """What is still to be written to a reader who has left goes nowhere: Python would try again and make exit status 120 of it."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError as error:
        if error.errno in GONE:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


if __name__ == "__main__":
    main()
