"""What does the guard policy know?

Tokens of a run are those beyond the prefix that all runs of an engine share: that one is in its KV memory once.
"""

from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core.fifo import Fifo
from luftpause.scheduler.core.sorted_set import SortedSet

Lane = tuple[str, str]  # run key, model
Above = tuple[tuple[Lane, float], ...]  # whose contexts a prompt begins with, nearest first, and at which token each ends
Words = tuple[str, bool]  # flow, whether it is a later turn of its run
Waiter = tuple[float, str, Lane, int]  # a held turn: arrival, id, lane, class


RUN = 1000  # residents are counted in thousandths of a run


class Mean(Struct, frozen=True, gc=False):
    """A mean that forgets: exact at first, then new values count a fixed part."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float, part: float = 0.05) -> "Mean":
        count, old = self.count + 1, self.value
        share = 1 / count
        return Mean(old + (share if share > part else part) * (value - old), count)  # noqa: FURB136 (a call of max costs as much again)


class LowDecile(Struct, frozen=True, gc=False):
    """About a tenth of the values are below: what something costs when nothing is in its way."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> "LowDecile":
        if self.count == 0:
            return LowDecile(value, 1)
        step = 0.2 if self.count < 50 else 0.05
        return LowDecile(self.value * (1 - 0.9 * step if value < self.value else 1 + 0.1 * step), self.count + 1)


class Pauses(Struct, frozen=True, gc=False):
    """How long a tool's calls took. `cost`: seconds of keeping a prefix for one of them, per run that comes back by `until`."""

    count: int = 0
    last: tuple[float, ...] = ()  # newest last
    cost: float = 0.0
    until: float = 0.0


class Flying(Struct, frozen=True, gc=False):
    """A generative turn in flight. `prompt` and `answer` are estimates, `said`: tokens of it that the shadow had when it was placed."""

    lane: Lane
    replica: str
    words: Words
    prompt: float  # beyond its stems
    answer: float
    said: float
    placed: float
    first_token: float = -1.0
    above: Above = ()
    stems: tuple[Lane, ...] = ()  # that it stands on
    hoped: float = 0.0  # first turn of a sub-agent: so much of its parent's context was there; 0: too little to tell whether it has that


class Prefix(Struct, frozen=True, gc=False):
    """What an engine still holds of a run whose turn has ended. `whole`: as much as it was. `number`: in the order of the engine's LRU."""

    number: int
    tokens: float
    whole: float
    coming: int = -1  # the class of the run, if that will come back


class Stem(Struct, frozen=True, gc=False):
    """The context of a lane that prompts of others in flight begin with. `turns`: how many stand on it. `coming` as in `Prefix`."""

    tokens: float
    turns: int
    coming: int = -1


class Paused(Struct, frozen=True, gc=False):
    """Of a class, at an engine: prefixes of runs that will come back."""

    runs: int = 0
    tokens: float = 0.0


class Engine(Struct, frozen=True, gc=False):
    """
    One replica's account. `kv`: tokens that it keeps; 0: unknown, and nothing has shown a limit yet. An engine of slots keeps prefixes as
    they are, however long: so many turns (`slots`) run at once, and `kept` prefixes stay, with those that run; 0: it tells no slots.
    """

    kv: float = 0.0
    kv_reported: float = 0.0
    slots: int = 0
    kept: float = 0.0
    gone: Mean = Mean()  # of prefixes that the shadow had; with slots alone
    here: Mean = Mean()  # of prefixes that the shadow had no more
    surprised: bool = False  # a prefix was gone that the shadow had
    lowered_at: float = -1.0  # when that last lowered `kv` or `kept`: turns placed before say the same again
    holding: bool = True  # are pauses of batch runs worth their place? As last judged
    turns: int = 0  # in flight
    prompts: float = 0.0  # of those, tokens
    answers: float = 0.0
    stems: "Map[Lane, Stem]" = Map()  # none of them is among the prefixes
    stem_tokens: float = 0.0
    prefixes: "Map[Lane, Prefix]" = Map()
    order: Fifo[tuple[int, Lane]] = Fifo()  # numbers of prefixes and whose they are; also of some that are there no more
    cached: float = 0.0  # tokens of all prefixes
    paused: tuple[Paused, Paused] = (Paused(), Paused())  # by class
    firsts: tuple[float, ...] = ()  # tokens that the last first turns found cached, newest last
    shared: float = 0.0  # of a prompt: what all runs begin with
    prompt: Mean = Mean()
    context: Mean = Mean()  # prompt and answer
    interactive: Mean = Mean()  # context of interactive turns, beyond what all runs share
    interactive_at: float = -1.0  # when a new interactive run last came here; negative: never
    interactive_gap: Mean = Mean()  # seconds from one of those to the next
    token_seconds: LowDecile = LowDecile()  # per uncached prompt token
    fixed_seconds: LowDecile = LowDecile()  # of a first token's time


class LaneAccount(Struct, frozen=True, gc=False):
    """A run's work with one model, from its first placement to an answer without tool calls."""

    flow: str
    turn_class: int
    replica: str
    born: float
    in_flight: int = 0
    waiting: int = 0  # held turns
    paused_at: float = -1.0  # negative: it is not paused
    look_at: float = 0.0  # when it is looked at next, while it is paused: is its run still known?
    tool: str = ""
    context: float = 0.0  # after its last answer, with what is shared; 0: not known
    prompt: float = 0.0  # of that, without the answer
    body_bytes: int = 0  # of its last request
    resident: bool = True  # it runs, or an engine has its prefix
    above: Above = ()
    weight: int = RUN  # as a resident


class FlowAccount(Struct, frozen=True, gc=False):
    """A caller's. `waiting`: its held turns, oldest first. `moved_up`: by so much for how long the oldest of them has waited."""

    resident: int = 0  # thousandths of runs: a sub-agent with its parent's context counts by what it holds beyond that
    batch: int = 0  # of them
    waiting: SortedSet[Waiter] = SortedSet()
    moved_up: int = 0
    step_at: float = 0.0  # when it moves up next; of no meaning while nothing waits


class Guarded(Struct, frozen=True, gc=False):
    engines: "Map[str, Engine]" = Map()
    flying: "Map[str, Flying]" = Map()
    lanes: "Map[Lane, LaneAccount]" = Map()
    flows: "Map[str, FlowAccount]" = Map()
    batch_flows: int = 0  # with resident batch runs
    number: int = 0  # of the newest prefix
    tokens_per_byte: "Map[str, Mean]" = Map()  # by model
    answers: "Map[Words, Mean]" = Map()  # tokens
    answers_of_class: tuple[Mean, Mean, Mean, Mean] = (Mean(), Mean(), Mean(), Mean())  # of first and later turns, by class
    results: tuple[Mean, Mean] = (Mean(), Mean())  # by class: next prompt less the context before
    pauses: "Map[str, Pauses]" = Map()  # by tool
    batch_pauses: Pauses = Pauses()  # of all tools
    forks: "Map[str, Mean]" = Map()  # by flow: how many of its sub-agents begin with their parent's context
    run_seconds: tuple[Mean, Mean] = (Mean(), Mean())  # by class
    looks: Fifo[tuple[float, Lane]] = Fifo()  # when a paused lane is looked at; also of some that have come back
    steps: SortedSet[tuple[float, str]] = SortedSet()  # when which flow moves up: each in which a turn waits
    touched: tuple[str, ...] = ()  # flows whose residents have changed since the core was last told
