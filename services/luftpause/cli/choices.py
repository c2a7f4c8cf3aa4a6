"""Which values do options of several commands take?"""

from enum import Enum


class Engine(Enum):
    """What takes the turns: two fakes, or llama.cpp with SmolLM2."""

    FAKE = "fake"
    LLAMACPP = "llamacpp"


class TurnClass(Enum):
    INTERACTIVE = "interactive"
    BATCH = "batch"
