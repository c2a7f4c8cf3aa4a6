"""Which replicas can take a request that is no turn?"""

from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.servers import serving, speaking
from luftpause.dataplane.turns import Kind, Replica


def a_replica(name: str, *models: str, state: str = "healthy", kind: Kind = Kind.GENERATIVE, apis: tuple[str, ...] = ()) -> Replica:
    return Replica(name, "http://x", models, kind, state, "", apis)


def test_healthy_ones_are_asked_first_and_none_that_is_down_or_speaks_something_else() -> None:
    replicas = [
        a_replica("new", state="unknown"),
        a_replica("down", state="unhealthy"),
        a_replica("chat", apis=("chat",)),
        a_replica("one", apis=("chat", "responses")),
        a_replica("classifier", kind=Kind.CLASSIFIER),
        a_replica("two"),
    ]
    assert [each.name for each in speaking(replicas, "responses")] == ["one", "two", "new"]


def test_a_model_is_served_by_those_that_name_it_or_its_like() -> None:
    replicas = [a_replica("a", "m"), a_replica("b", "n"), a_replica("c", "m*"), a_replica("d", "m", kind=Kind.EMBEDDING)]
    found = serving(replicas, "m", "messages")
    assert not isinstance(found, Rejection)
    assert [each.name for each in found] == ["a", "c"]


def test_a_model_that_may_yet_be_learned_is_waited_for() -> None:
    found = serving([a_replica("a", "n"), a_replica("new", state="unknown")], "m", "messages")
    assert isinstance(found, Rejection)
    assert (found.status, found.retry_after_s > 0) == (503, True)
