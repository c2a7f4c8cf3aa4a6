"""What do the ids of runs, turns and processes look like?"""

import os
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford base32: no I, L, O, U
LENGTH: Final = 26  # 130 bits: nobody guesses a handle

_CROCKFORD: Final = ALPHABET.encode() * 8  # any byte to a character, each equally often

RUN_PREFIX: Final = "run_"
TURN_PREFIX: Final = "turn_"


def random_text(length: int = LENGTH) -> str:
    """`length` characters of `ALPHABET`, 5 bits each, from the operating system's random source."""
    return os.urandom(length).translate(_CROCKFORD).decode()


def new_run_id() -> str:
    """`run_` and 26 characters."""
    return RUN_PREFIX + random_text()


def new_turn_id() -> str:
    """`turn_` and 26 characters."""
    return TURN_PREFIX + random_text()


def new_boot_id() -> str:
    """Names one life of one process: 26 characters."""
    return random_text()
