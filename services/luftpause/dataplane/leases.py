"""What is told of a lease, at a replica with a quota, besides how its turn went?"""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from luftpause.dataplane.turns import Usage


class AnswerTold(Struct, frozen=True):
    """What an answer said of limits."""

    status: int
    headers: Mapping[str, str]
    excerpt: str


class LeaseEnd(Enum):
    UNUSED = "unused"  # nothing was sent
    ANSWERED = "answered"
    LIMITED = "limited"
    FAILED = "failed"


class LeaseEnded(Struct, frozen=True):
    """How a turn with a lease ended while there was no session."""

    turn: str
    attempt: int
    replica: str
    fence: int
    end: LeaseEnd
    usage: Usage | None
    told: AnswerTold | None
