"""Which classes and kinds of turns are there?"""

from enum import Enum, IntEnum


class TurnClass(IntEnum):
    """Smaller goes first."""

    INTERACTIVE = 0
    BATCH = 1


class Kind(Enum):
    GENERATIVE = "generative"
    CLASSIFIER = "classifier"
    EMBEDDING = "embedding"
