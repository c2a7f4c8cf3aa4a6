"""What would promtool say of a metrics page, and did its counters only grow since an earlier one?"""

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

Series = tuple[str, tuple[tuple[str, str], ...]]
NAME = re.compile(r"[a-z][a-z0-9_]*")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
TYPES = {"counter", "gauge", "histogram", "summary"}  # promtool: no metric bears its type in its name
UNITS = ("_seconds", "_bytes")  # that a histogram's name ends with
UNITS_NOT_BASE = ("_ms", "_milliseconds", "_us", "_microseconds", "_minutes", "_hours", "_kilobytes", "_kb", "_percent")


class Page:
    """A page in the text of old or as OpenMetrics; raises AssertionError where it breaks a rule."""

    def __init__(self, text: str, *, openmetrics: bool = False, series_max: int = 2000) -> None:
        self.families: dict[str, Any] = {}
        self.values: dict[Series, float] = {}
        for family in (parse_openmetrics if openmetrics else parse_text)(text):
            assert family.name not in self.families, f"{family.name} is there twice"
            self.families[family.name] = family
            self._check(family)
        assert len(self.values) <= series_max
        assert not openmetrics or text.endswith("# EOF\n")
        self._check_heads(text)

    def sum(self, name: str, **labels: str) -> float:
        """All samples of this name with these labels."""
        return sum(value for (found, has), value in self.values.items() if found == name and labels.items() <= dict(has).items())

    def labels(self) -> dict[str, set[str]]:
        """Label -> the values that it has anywhere."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for _, labels in self.values:
            for name, value in labels:
                found[name].add(value)
        return found

    def follows(self, earlier: "Page") -> None:
        """No counter fell, and no series of one vanished."""
        for name, family in earlier.families.items():
            if family.type not in {"counter", "histogram"}:
                continue
            for sample in family.samples:
                series = _series(sample)
                assert series in self.values, f"{series} vanished"
                assert self.values[series] >= sample.value, f"{name}: {series} fell"

    def _check(self, family: Any) -> None:
        name = family.name
        assert NAME.fullmatch(name), name
        assert family.type in SUFFIXES, f"{name} has type {family.type}"
        assert family.documentation.strip(), f"{name} has no HELP"
        assert not name.endswith(UNITS_NOT_BASE), f"{name}: base units"
        assert name.endswith("_total") is False
        assert not any(f"{unit}_" in f"{name}_" for unit in UNITS_NOT_BASE), f"{name}: base units"
        assert not TYPES & set(name.split("_")), f"{name} bears its type"
        assert not name.endswith(("_bucket", "_count", "_sum")), f"{name}: that is a part of a histogram"
        assert family.type != "histogram" or name.endswith(UNITS), f"{name}: a histogram's name ends with its unit"
        for sample in family.samples:
            assert sample.name.removeprefix(name) in SUFFIXES[family.type], f"{sample.name} in {name}"
            assert not math.isnan(sample.value), sample
            assert family.type not in {"counter", "histogram"} or sample.value >= 0, sample
            series = _series(sample)
            assert series not in self.values, f"{series} is there twice"
            self.values[series] = sample.value
        shapes = Counter(tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples)
        assert len(shapes) <= 1, f"{name}: not all series have the same labels: {shapes}"
        if family.type == "histogram":
            self._check_histogram(family)

    def _check_heads(self, text: str) -> None:
        """Each family has one line of HELP and one of TYPE, before its samples."""
        for kind in ("HELP", "TYPE"):
            heads = Counter(line.split(" ", 3)[2] for line in text.splitlines() if line.startswith(f"# {kind} "))
            assert not [name for name, count in heads.items() if count > 1]
            bare = {name.removesuffix("_total").removesuffix("_info") for name in heads}
            assert bare >= {name.removesuffix("_info") for name in self.families}, f"without {kind}: {self.families.keys() - bare}"

    @staticmethod
    def _check_histogram(family: Any) -> None:
        buckets: defaultdict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
        others: dict[tuple[str, tuple[Any, ...]], float] = {}
        for sample in family.samples:
            labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
            if sample.name.endswith("_bucket"):
                buckets[labels].append((float(sample.labels["le"]), sample.value))
            else:
                others[sample.name.removeprefix(family.name), labels] = sample.value
        for labels, found in buckets.items():
            bounds, counts = zip(*found, strict=True)
            assert list(bounds) == sorted(set(bounds)), f"{family.name}: {bounds}"
            assert bounds[-1] == math.inf
            assert list(counts) == sorted(counts), f"{family.name}: not cumulative"
            assert others["_count", labels] == counts[-1]
            least = sum(before[0] * (after[1] - before[1]) for before, after in pairwise(found))
            assert others["_sum", labels] >= least - 1e-9, f"{family.name}: the sum is less than its buckets allow"
        assert len(others) == 2 * len(buckets)


def _series(sample: Any) -> Series:
    return sample.name, tuple(sorted(sample.labels.items()))
