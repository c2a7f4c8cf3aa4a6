"""How many connections and files may this process have open?"""

import contextlib
import resource
from typing import Final

OPEN_FILES: Final = 65_536  # each client's connection is one, also an idle one


def allow_more() -> None:
    """Up to OPEN_FILES, where the system lets it: many give a process 1,024 unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
