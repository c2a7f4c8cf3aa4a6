"""What do dataplanes tell of the limits of hosted APIs? It is for the governor: no event of the core."""

from collections.abc import Mapping

from msgspec import Struct

from luftpause.scheduler.core.decisions import Outcome


class AnswerTold(Struct, frozen=True, gc=False):
    """
    What the answer to a turn says about limits, told just before its end.

    `headers`: those that may say something; `excerpt`: the beginning of the body of a refusal. `status`: of a refusal inside a 200 stream
    it is 429.
    """

    turn: str
    attempt: int
    status: int
    headers: Mapping[str, str]
    excerpt: str = ""


class LeaseTold(Struct, frozen=True, gc=False):
    """
    How a lease ended while its dataplane had no scheduler, or whose turn goes elsewhere although an engine had it.

    Tokens as its engine counted them; None: it did not say.
    """

    turn: str
    attempt: int
    replica: str
    fence: int
    outcome: Outcome
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    answer: AnswerTold | None = None


Told = AnswerTold | LeaseTold
