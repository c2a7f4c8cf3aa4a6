"""How is a comparison drawn?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def grouped_bars(
    axes: "Axes",
    groups: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    label: str,
    spreads: Mapping[str, Sequence[float]] | None = None,
    even: float | None = None,
) -> None:
    """Beside each other within each group: one bar for each name in `values`; `spreads` as error bars, `even` as a line across."""
    width = 0.8 / max(1, len(values))
    for number, (name, heights) in enumerate(values.items()):
        at = [group + (number - (len(values) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(at, heights, width, label=name, yerr=spreads[name] if spreads else None, capsize=2)
    if even is not None:
        axes.axhline(even, color="black", linewidth=0.8)
    axes.set_xticks(range(len(groups)), groups, fontsize=9)
    axes.set_ylabel(label)
    axes.legend(fontsize=8)
