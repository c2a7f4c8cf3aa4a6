"""Does a single pass go unasked only where the scheduler could have given no other answer?"""

import pytest

from luftpause.dataplane.turns import Kind, Replica
from luftpause.dataplane.unasked import MODEL_CHARS_MAX, MODELS_MAX, Unasked
from tests.support.waiters import an_ask


def a_replica(name: str = "j", *models: str, kind: Kind = Kind.CLASSIFIER, state: str = "healthy", unasked: bool = True) -> Replica:
    return Replica(name, f"http://{name}", models or ("judge",), kind, state, passes_unasked=unasked)


def where(*replicas: Replica, model: str = "judge", kind: Kind = Kind.CLASSIFIER, **more: object) -> str:
    """The name of the replica that it goes to unasked; empty: it asks."""
    unasked = Unasked()
    unasked.announced({each.name: each for each in replicas})
    found = unasked.replica_for(an_ask("t", model=model, kind=kind, **more))
    return found.name if found is not None else ""


def test_where_one_replica_can_take_it_nobody_is_asked() -> None:
    assert where(a_replica()) == "j"
    assert where(a_replica("g", "emb", kind=Kind.GENERATIVE), model="emb", kind=Kind.EMBEDDING) == "g"
    assert where(a_replica("g", "ju*", "other"), model="judge") == "g"


@pytest.mark.parametrize(
    "replicas",
    [
        (),
        (a_replica(unasked=False),),
        (a_replica(state="unhealthy"),),
        (a_replica(state="unknown"),),
        (a_replica("j", "other"),),
        (a_replica(), a_replica("k")),  # there is a choice
        (a_replica(), a_replica("k", "j*")),
        (a_replica(), a_replica("k", unasked=False)),  # also where the other one has a cap of its own
        (a_replica("g", kind=Kind.GENERATIVE),),  # which classifies nothing
        (a_replica("e", kind=Kind.EMBEDDING),),
    ],
)
def test_where_the_scheduler_might_say_something_else_it_is_asked(replicas: tuple[Replica, ...]) -> None:
    assert where(*replicas) == ""


def test_others_that_cannot_take_it_leave_no_choice() -> None:
    others = a_replica("k", state="unhealthy"), a_replica("o", "other"), a_replica("g", kind=Kind.GENERATIVE)
    assert where(a_replica(), *others) == "j"


def test_embeddings_may_go_to_a_generative_replica_or_to_one_of_their_own() -> None:
    generative, own = a_replica("g", "emb", kind=Kind.GENERATIVE), a_replica("e", "emb", kind=Kind.EMBEDDING)
    assert where(generative, a_replica("c", "emb"), model="emb", kind=Kind.EMBEDDING) == "g"
    assert where(generative, own, model="emb", kind=Kind.EMBEDDING) == ""


@pytest.mark.parametrize(("priority", "goes_to"), [(-1, "j"), (0, ""), (2, "")])
def test_whether_a_priority_may_be_claimed_is_asked(priority: int, goes_to: str) -> None:
    assert where(a_replica(), priority=priority) == goes_to


def test_before_an_announcement_is_read_everything_is_asked() -> None:
    assert Unasked().replica_for(an_ask("t", model="judge", kind=Kind.CLASSIFIER)) is None


def test_each_announcement_counts_from_then_on() -> None:
    unasked, ask = Unasked(), an_ask("t", model="judge", kind=Kind.CLASSIFIER)
    found: list[str] = []
    for replica in (a_replica(), a_replica(unasked=False), a_replica("k")):
        unasked.announced({replica.name: replica})
        for _ in range(2):
            there = unasked.replica_for(ask)
            found.append(there.name if there is not None else "")
    assert found == ["j", "j", "", "", "k", "k"]


def test_a_doubt_lasts_until_a_turn_that_was_requested_after_it_is_placed_there() -> None:
    unasked, ask = Unasked(), an_ask("t", model="judge", kind=Kind.CLASSIFIER)
    unasked.announced({"j": a_replica()})
    unasked.doubt("j", 7)
    assert unasked.replica_for(ask) is None
    unasked.trust("j", 7)  # the scheduler may have placed it before it heard
    unasked.trust("k", 8)
    unasked.announced({"j": a_replica()})
    assert unasked.replica_for(ask) is None
    unasked.trust("j", 8)
    assert unasked.replica_for(ask) == a_replica()
    unasked.trust("j", 9)


def test_models_that_clients_make_up_are_not_remembered_without_end() -> None:
    unasked = Unasked()
    unasked.announced({"j": a_replica("j", "*")})
    for number in range(3 * MODELS_MAX):
        assert unasked.replica_for(an_ask("t", model=f"m{number}", kind=Kind.CLASSIFIER)) == a_replica("j", "*")
    assert len(unasked._found) <= MODELS_MAX


def test_a_model_whose_name_has_no_end_is_not_remembered_at_all() -> None:
    unasked = Unasked()
    unasked.announced({"j": a_replica("j", "*")})
    assert unasked.replica_for(an_ask("t", model="m" * (MODEL_CHARS_MAX + 1), kind=Kind.CLASSIFIER)) is None
    assert not unasked._found
