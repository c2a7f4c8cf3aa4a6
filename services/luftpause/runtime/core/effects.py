"""What does the core order the shell to do?"""

from msgspec import Struct

from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import RunState


class AskModel(Struct, frozen=True):
    """Ask for the next turn; the messages are `history.messages(run)`. `with_tools` False: offer none, the model must answer."""

    with_tools: bool


class StartCall(Struct, frozen=True):
    """Journal `CallStarted`, then make the call, then journal `CallEnded`."""

    id: str
    name: str
    arguments: str  # JSON text of an object
    repeatable: bool = False  # it was known to be when it was made before


class AskApproval(Struct, frozen=True):
    """Journal `ApprovalAsked`; `ApprovalAnswered` follows when a person has decided."""

    id: str
    approval: str


class Finish(Struct, frozen=True):
    """Journal `Finished` together with the event that caused this."""

    state: RunState
    text: str


Effect = AskModel | StartCall | AskApproval | Finish


class RunStep(Struct, frozen=True):
    """`effects` in the order in which they are carried out; several `StartCall` run at the same time."""

    run: Run
    effects: tuple[Effect, ...] = ()
