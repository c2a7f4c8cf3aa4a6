"""What is known of a turn that needs quota, and of a run whose turns do?"""

from msgspec import Struct

LEVEL_LOWER = 1  # answers are shortened
LEVEL_COMPACT = 2  # and runtimes asked to shorten what they send
LEVEL_FALL = 3  # and runs go on with another model


class TurnQuota(Struct, frozen=True, gc=False):
    """
    `asks`: replicas at whose quota it waits; `lines`: those with a quota that are full, in whose line it stands; `given_up`: those whose
    quota opens too late, or never.
    """

    claimed: int = -1  # the priority that its request states; -1: none
    answer_tokens_max: int = 0  # as its request states; 0: not stated
    asks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    deferred: bool = False  # a quota had no room at once: it asks at all
    since: float = 0.0  # when it first asked
    until: float = 0.0  # a quota that it needs is blocked until then
    tries: int = 0  # its answers that were refusals by quota
    moved: bool = False  # another model in this attempt
    model: str = ""  # that its request names, where it goes on with another
    fence: int = 0  # of its lease; 0: it has none
    level: int = 0  # how far to cut its load
    answer_share: float = 1.0  # its answer is to be so much shorter,
    answer_least: int = 0  # but not below that, in tokens


class RunQuota(Struct, frozen=True, gc=False):
    """
    `fell`: (model that requests name, or that it has left, model it goes on with). Of its answers so far: their number, mean and sum of
    squared deviations from it, in tokens; `tokens_per_byte` of the newest request.
    """

    fell: tuple[tuple[str, str], ...] = ()
    answers: int = 0
    mean: float = 0.0
    squares: float = 0.0
    tokens_per_byte: float = 0.0
