"""Do our counters and histograms show Prometheus what was counted?"""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from luftpause.kit import metrics
from luftpause.kit.metrics import Counter, Histogram, gauge_family


class Fixed:
    """Collects what it was given."""

    def __init__(self, *families):
        self.families = families

    def collect(self):
        return self.families


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in parse_text(text.decode()) for s in family.samples}


async def test_a_counter_shows_its_series_under_its_name_with_total():
    turns = Counter("turns", "Turns.", ("class",))
    turns.add(("batch",))
    turns.add(("batch",), 2)
    turns.add(('with "quotes"\n',))
    text, kind = await metrics.page([Fixed(turns.family())], "")
    assert kind.startswith("text/plain; version=0.0.4")
    assert samples(text) == {("turns_total", (("class", "batch"),)): 3, ("turns_total", (("class", 'with "quotes"\n'),)): 1}
    assert turns.value(("batch",)) == 3


async def test_a_counter_without_labels_is_0_from_the_start():
    text, _ = await metrics.page([Fixed(Counter("moves", "Moves.").family())], "")
    assert samples(text) == {("moves_total", ()): 0}


async def test_a_histogram_counts_up_to_and_including_each_bound():
    held = Histogram("held_seconds", "Held.", (0.01, 1, 60), ("class",))
    for value in (0.0, 0.01, 0.02, 60.0, 61.0):
        held.observe(value, ("batch",))
    text, _ = await metrics.page([Fixed(held.family())], "")
    found = samples(text)
    buckets = {dict(labels)["le"]: value for (name, labels), value in found.items() if name == "held_seconds_bucket"}
    assert buckets == {"0.01": 2, "1.0": 3, "60.0": 4, "+Inf": 5}
    assert found["held_seconds_count", (("class", "batch"),)] == 5
    assert found["held_seconds_sum", (("class", "batch"),)] == pytest.approx(121.03)


def test_beyond_their_limit_new_series_are_counted_together():
    turns = Counter("turns", "Turns.", ("replica", "class"), series_max=2)
    held = Histogram("held_seconds", "Held.", (1,), ("replica", "class"), series_max=2)
    for name in ("a", "b", "c", "d", "a"):
        turns.add((name, "batch"))
        held.observe(0.5, (name, "batch"))
    assert turns.series() == {("a", "batch"): 2, ("b", "batch"): 1, ("other", "other"): 2}
    counts = {s.labels["replica"]: s.value for s in held.family().samples if s.name == "held_seconds_count"}
    assert counts == {"a": 2, "b": 1, "other": 2}


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "text/html, Application/OpenMetrics-Text; version=x",
    ],
)
async def test_openmetrics_comes_where_it_is_accepted_and_ends_once(accept: str):
    many = [gauge_family(f"gauge_{n}", "A gauge.", ("n",), [((str(i),), i) for i in range(200)]) for n in range(5)]
    text, kind = await metrics.page([Fixed(*many), Fixed(Counter("moves", "Moves.").family())], accept)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.count(b"# EOF") == 1
    assert text.endswith(b"# EOF\n")
    families = list(parse_openmetrics(text.decode()))
    assert [family.name for family in families] == [*(f"gauge_{n}" for n in range(5)), "moves"]
    assert sum(len(family.samples) for family in families) == 1001


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=nonsense", "application/json"])
async def test_anything_else_gets_the_text_of_old(accept: str):
    text, kind = await metrics.page([Fixed(Counter("moves", "Moves.").family())], accept)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in text
    assert samples(text) == {("moves_total", ()): 0}
