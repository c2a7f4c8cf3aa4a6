"""Which nouns does the scheduler's state consist of?"""

from msgspec import Struct


class State(Struct, frozen=True, gc=False):
    """Everything that `decide` knows. An old state stays valid after `decide`."""
