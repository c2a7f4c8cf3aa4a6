"""Does the core hear of replicas as they are configured, and dataplanes of what it knows of them?"""

from luftpause.kit.config import ReplicaConfig
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import Kind, ProbeOutcome, ReplicaProbed, ReplicaSpec
from luftpause.scheduler.core.model import Settings
from luftpause.scheduler.replicas import announced, specs
from luftpause.scheduler.translate import Announced, Replicas

CONFIG = ReplicaConfig(
    name="a", url="http://e:1/v1/", models=("m",), kind="classifier", load="none", max_in_flight=3, api_key_env="KEY", apis=("chat",)
)
SPEC = ReplicaSpec(
    name="a", url="http://e:1", models=("m",), kind=Kind.CLASSIFIER, capped=False, max_in_flight=3, api_key_env="KEY", apis=("chat",)
)


def test_all_that_the_core_decides_on_is_carried_over():
    assert specs([CONFIG]) == (SPEC,)
    assert specs([ReplicaConfig(name="b", url="https://e")]) == (ReplicaSpec(name="b", url="https://e"),)


def test_dataplanes_are_told_of_replicas_without_their_keys():
    state = initial(Settings(), specs([CONFIG, ReplicaConfig(name="b", url="http://f")]), 0.0)
    assert announced(state) == Replicas((
        Announced("a", "http://e:1", ("m",), Kind.CLASSIFIER, "unknown", "KEY", ("chat",)),
        Announced("b", "http://f", (), Kind.GENERATIVE, "unknown"),
    ))  # fmt: skip


def test_under_guard_dataplanes_ask_engines_that_generate_for_usage():
    state = initial(Settings(policy="guard"), specs([CONFIG, ReplicaConfig(name="b", url="http://f")]), 0.0)
    assert {each.name: each.asks_usage for each in announced(state).replicas} == {"a": False, "b": True}


def test_dataplanes_are_told_where_passes_may_go_unasked_once_that_is_so():
    state = initial(Settings(), specs([CONFIG, ReplicaConfig(name="b", url="http://f"), ReplicaConfig(name="c", url="http://g")]), 0.0)
    for name in "ab":
        state = decide(state, ReplicaProbed(1.0, name, ProbeOutcome.OK)).state
    assert {each.name: each.passes_unasked for each in announced(state).replicas} == {"a": False, "b": True, "c": False}
