"""What can be due, when and for whom?"""

from enum import IntEnum

from immutables import Map


class Timer(IntEnum):
    """What is due at a time. Up to LOST exactly then; the others in the whole second that follows."""

    GATE = 0
    IDENTITY = 1
    LOAD = 2
    NO_REPLICA = 3
    LOST = 4
    RESERVE = 5
    TURN = 6
    RUN = 7
    IDS = 8
    TWIN = 9
    RESPONSE = 10
    TOMBSTONE = 11
    HOLD = 12
    QUOTA = 13


Due = tuple[float, int, str, str]  # when, which Timer, of whom, a detail
Second = Map[Due, bool]  # all that is due in one second of the wheel; a set
