"""Which version of the session's protocol does this build speak?"""

from typing import Final

MAJOR: Final = 1  # differs: the session is refused
MINOR: Final = 1  # differs: what one side doesn't know it skips

MESSAGE_BYTES_MAX: Final = 16 * 2**20  # both sides, both ways
BATCH_BYTES: Final = 64 * 1024  # a batch is closed when it reaches this
ALIVE_SECONDS: Final = 1.0  # each side sends at least this often
SILENCE_SECONDS: Final = 4.0  # a side that hears nothing for this long calls it an outage
