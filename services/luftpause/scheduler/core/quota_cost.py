"""What will a turn take from a quota, and how urgent is it?"""

from math import ceil, sqrt

from msgspec.structs import replace

from luftpause.scheduler.core.events import TurnClass, Usage
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.model import GENERATIVE, Turn
from luftpause.scheduler.core.quota_model import RunQuota
from luftpause.scheduler.core.settings import EVERYBODY_ELSE, NOBODY, CallerPriority

TOKENS_PER_BYTE = 0.3  # of a request's JSON, while its engine has not counted any
ANSWER_TOKENS = 1_000  # of a run's first answer, where its request does not limit it
DEVIATIONS = 2.0

UNKNOWN = RunQuota()


def priority_of(d: Draft, turn: Turn) -> int:
    """0 critical, 1 standard, 2 background: as claimed (that it may is seen to before), pinned by configuration, or by class."""
    if turn.quota is not None and turn.quota.claimed >= 0:
        return turn.quota.claimed
    return usual_priority(d, turn.caller, turn.turn_class)


def usual_priority(d: Draft, caller: str, turn_class: TurnClass) -> int:
    """Without a claim. Whoever is configured without a priority has that of the class."""
    found = configured(d, caller).priority
    if found is not None:
        return found
    return 2 if turn_class is TurnClass.BATCH else 1


def configured(d: Draft, caller: str) -> CallerPriority:
    """What is configured of a caller, or of everybody who is not named."""
    found = NOBODY
    for each in d.settings.callers:
        if each.caller == caller:
            return each
        if each.caller == EVERYBODY_ELSE:
            found = each
    return found


def cost_of(d: Draft, turn: Turn) -> tuple[int, int]:
    """Tokens of its prompt and its answer, as reserved: min(max_tokens, mean + 2 deviations of this run's answers)."""
    run = d.run_quotas.get(turn.run, UNKNOWN)
    prompt = ceil(turn.body_bytes * (run.tokens_per_byte or TOKENS_PER_BYTE))
    if turn.kind != GENERATIVE:
        return prompt, 0
    most = turn.quota.answer_tokens_max if turn.quota is not None else 0
    if not run.answers:
        return prompt, most or ANSWER_TOKENS
    # One answer says nothing of how much they differ: as much as it is long, to be safe.
    deviation = sqrt(run.squares / (run.answers - 1)) if run.answers > 1 else run.mean / DEVIATIONS
    expected = max(1, ceil(run.mean + DEVIATIONS * deviation))
    return prompt, min(most, expected) if most else expected


def learn(d: Draft, turn: Turn, usage: Usage) -> None:
    """One more answer of its run."""
    if turn.run not in d.runs or turn.kind != GENERATIVE:
        return
    run = d.run_quotas.get(turn.run, UNKNOWN)
    answers = run.answers + 1
    off = usage.completion - run.mean
    mean = run.mean + off / answers
    ratio = usage.prompt / turn.body_bytes if turn.body_bytes and usage.prompt else run.tokens_per_byte
    run = replace(run, answers=answers, mean=mean, squares=run.squares + off * (usage.completion - mean), tokens_per_byte=ratio)
    d.run_quotas = d.run_quotas.set(turn.run, run)
