"""Which turns and dataplanes do the books know?"""

from dataclasses import dataclass, field
from math import inf

from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass


@dataclass(slots=True, eq=False)
class Entry:
    """A turn that somebody waits for. `replica` empty: it is held."""

    turn: str
    attempt: int
    dataplane: str
    model: str
    generative: bool
    turn_class: TurnClass
    principal: str
    caller: str
    arrived: float
    api: str = "chat"
    asked: float = 0.0  # as `arrived`, but never inherited
    earliest: float = 0.0  # the earliest arrival that it may have inherited, known once it is placed
    stated: str = ""  # the run that its request names
    run: str = ""  # as decided
    ids: tuple[str, ...] = ()  # carried by the request
    without: tuple[str, ...] = ()
    responds: bool = False  # it goes on from a response that one replica stores
    replica: str = ""
    placed: float = 0.0
    reason: HoldReason | None = None
    told: float = 0.0  # when it was told this reason
    first_told: int = 0  # the event at which it was first held in this attempt
    new_run: bool = False  # its place was the first of its run: it brought no place that was kept for it
    keeps_nothing: bool = False  # its run was ended meanwhile, or another engine is behind its replica's name

    @property
    def flow(self) -> tuple[str, str]:
        """Who shares fairly."""
        return self.principal, self.caller

    @property
    def run_key(self) -> str:
        """Run ids are scoped by principal."""
        return f"{self.run}\x1f{self.principal}"


@dataclass(slots=True, eq=False)
class Left:
    """A turn that was abandoned while held, and the arrival that its retry inherits."""

    arrived: float
    until: float


@dataclass(slots=True, eq=False)
class Peer:
    """A dataplane. `lost`: when its session ended."""

    session: str = ""
    boot: str = ""
    lost: float = inf
    suspects: set[str] = field(default_factory=set[str])
    unusable: set[str] = field(default_factory=set[str])
