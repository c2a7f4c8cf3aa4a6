"""Which figures of a benchmark's JSON can be compared, and how do they differ?

Tables of `luftpause_bench.report` are read row by row; of any other document, as older revisions write them, every number by its path.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

Figures = dict[str, float]


def figures(document: Any) -> Figures:
    """By name, as `table: row: column`. Counts of the document's making (seconds, machine, versions, seeds) are none."""
    tables: Any = document.get("tables") if isinstance(document, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(tables, list) and tables and all(isinstance(each, dict) and "columns" in each for each in tables):  # pyright: ignore[reportUnknownVariableType]
        found: Figures = {}
        for table in cast("list[dict[str, Any]]", tables):
            found |= _of_table(table)
        return found
    return dict(_numbers(document, ""))


def _of_table(table: Mapping[str, Any]) -> Figures:
    names = _column_names(table["columns"])
    found: Figures = {}
    title = str(table["title"]).split(";", maxsplit=1)[0]
    for number, row in enumerate(table["rows"]):
        texts = [value for value in row if isinstance(value, str)]
        what = ", ".join(texts[:2]) or (f"row {number + 1}" if len(table["rows"]) > 1 else "")
        for name, value in zip(names, row, strict=True):
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[": ".join(part for part in (title, what, name) if part)] = float(value)
    return found


def _column_names(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """A column that only says `spread`, or whose name there is twice, is told by the one before it."""
    names: list[str] = []
    for column in columns:
        name = f"{column['name']} ({column['unit']})" if column.get("unit") else str(column["name"])
        names.append(name if name not in names and column["name"] != "spread" else f"{names[-1]}, {name}")
    return names


_NO_FIGURES = frozenset({"machine", "versions", "seeds", "seconds", "took_seconds", "parameters", "quick", "scenes", "bounds"})


def _numbers(value: Any, path: str) -> list[tuple[str, float]]:
    match value:
        case bool():
            return []
        case int() | float():
            return [(path, float(value))]
        case dict():
            named = cast("dict[str, Any]", value)
            pairs = [(f"{path}.{key}" if path else key, each) for key, each in named.items() if path or key not in _NO_FIGURES]
        case list():
            pairs = [(f"{path}[{number}]", each) for number, each in enumerate(cast("list[Any]", value))]
        case _:
            return []
    return [found for name, each in pairs for found in _numbers(each, name)]


class Compared(Struct, frozen=True):
    """
    A figure in each revision: mean and half of the range over repeats. `change`: last against first, as a part; None: not in both, or from
    0. `noise`: whether the ranges overlap.
    """

    name: str
    means: tuple[float | None, ...]
    spreads: tuple[float, ...]
    change: float | None
    noise: bool


def compare(found: Sequence[Sequence[Figures]]) -> list[Compared]:
    """`found`: for each revision the figures of its repeats. In the order in which they come in the first revision that has them."""
    names = dict.fromkeys(name for revision in found for repeat in revision for name in repeat)
    return [_compared(name, [[repeat[name] for repeat in revision if name in repeat] for revision in found]) for name in names]


def _compared(name: str, values: Sequence[Sequence[float]]) -> Compared:
    means = tuple(statistics.mean(each) if each else None for each in values)
    spreads = tuple((max(each) - min(each)) / 2 if each else 0.0 for each in values)
    first, last = means[0], means[-1]
    change = None if first is None or last is None or not first or not math.isfinite(first + last) else last / first - 1
    return Compared(name, means, spreads, change, _overlap(values[0], values[-1]))


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return bool(one) and bool(other) and min(one) <= max(other) and min(other) <= max(one)
