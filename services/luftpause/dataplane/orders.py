"""What does an order that came by the wire mean for the ledger?"""

from typing import TYPE_CHECKING, Any

from luftpause.dataplane.announced import Listed
from luftpause.dataplane.turns import Kind, Lease
from luftpause.dataplane.wire import KINDS_READ
from luftpause.kit.logs import Log
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from luftpause.dataplane.ledger import Ledger

log = Log("dataplane")


def absorb(ledger: "Ledger[Any]", order: pb.Order) -> None:
    """Carry out an order (not Welcome and Alive, which concern the session)."""
    match order.WhichOneof("order"):
        case "held":
            held = order.held
            ledger.held(held.turn, held.attempt, held.run, held.reason)
        case "placed":
            to = order.placed
            ledger.placed(
                to.turn, to.attempt, run=to.run, replica=to.replica, turn_seq=to.turn_seq, why=to.hold_reason, held_ms=to.held_ms,
                priority=to.priority if to.HasField("priority") else None, lease=_lease(to) if to.fence or to.model else None,
            )  # fmt: skip
        case "refused":
            _refused(ledger, order.refused)
        case "replicas":
            ledger.announced(map(_listed, order.replicas.replicas))
        case "run_forgotten":
            ledger.forgotten(order.run_forgotten.run, order.run_forgotten.principal)
        case "branch_followed":
            told = order.branch_followed
            ledger.followed_elsewhere(told.run, told.principal, told.model, tuple(told.tool_call_ids))
        case "located":
            ledger.located(order.located.query, order.located.replica)
        case other:
            ledger.counts["unknown_order"] += 1
            log.debug("skipped an order that this version does not know", order=other or "none")


def _refused(ledger: "Ledger[Any]", order: pb.Refused) -> None:
    seconds = -(-order.retry_after_ms // 1000)
    ledger.refused(
        order.turn, order.attempt, run=order.run, status=order.status or 503, code=order.code, message=order.message, retry_after_s=seconds
    )


def _lease(to: pb.Placed) -> Lease:
    return Lease(to.fence, to.level, to.answer_share, to.answer_least, to.model)


def _listed(each: pb.Replica) -> Listed:
    kind = KINDS_READ.get(each.kind, each.kind) if each.kind else Kind.GENERATIVE
    return Listed(
        each.name, each.url, tuple(each.models), kind, each.state, each.api_key_env, tuple(each.apis), each.asks_usage,
        each.tells_limits, each.holds_limits, each.passes_unasked,
    )  # fmt: skip
