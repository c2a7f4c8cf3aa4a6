"""What does a node show of the ledger that it shares with others?"""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct
from prometheus_client.metrics_core import Metric

from luftpause.kit.metrics import gauge_family
from luftpause.scheduler.governor.store.sharing import Sharing

P: Final = "luftpause_scheduler_quota_store_"
MODES: Final = ("up", "down", "learning")


class SharingView(Struct, frozen=True):
    """
    `mode`: `down`: the store can't be reached; `learning`: it is back, or has lost writes, and grants stay within the safe share.

    `nodes`: how many share a target, by its name. `untold`: ends of calls that the store has to be told yet. `outages`: since the start;
    `losses`: how often the store had lost writes. `declines`: grants that the store, or the safe share, did not allow, by cause.
    """

    node: str
    mode: Literal["up", "down", "learning"]
    nodes: dict[str, int]
    untold: int
    outages: int
    losses: int
    declines: dict[str, int]


def sharing_view(sharing: Sharing) -> SharingView:
    link = sharing.link
    return SharingView(
        node=link.node,
        mode=sharing.mode,
        nodes={name: shared.nodes for name, shared in sorted(link.targets.items())},
        untold=len(link.journal),
        outages=link.outages,
        losses=link.losses,
        declines=dict(sorted(sharing.declines.items())),
    )


def sharing_metrics(sharing: Sharing) -> Iterator[Metric]:
    """Names of targets and causes only."""
    shown = sharing_view(sharing)
    yield gauge_family(P + "mode", "1 for how the shared store is.", ("mode",), [((mode,), shown.mode == mode) for mode in MODES])
    yield gauge_family(P + "nodes", "Nodes that share a target.", ("target",), [((name,), count) for name, count in shown.nodes.items()])
    yield gauge_family(P + "untold", "Ends of calls that the shared store has not been told yet.", (), [((), shown.untold)])
