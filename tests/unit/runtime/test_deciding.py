"""Which model is asked to decide, what is refused before, and what does each kind of answer mean?"""

import asyncio
import json

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.deciding import Models
from luftpause.runtime.decisions import decision_of
from luftpause.runtime.ports import Decision, TurnError
from tests.support.agents import ScriptedModel


def models(
    default: str | None = None, served: tuple[str, ...] = ("m",), classifying: tuple[str, ...] = ("c",)
) -> tuple[Models, ScriptedModel]:
    client = ScriptedModel(served=served)
    client.classifying = classifying
    return Models(client, default), client


async def test_labels_go_to_the_generative_model_and_plain_text_to_the_classifier() -> None:
    asking, client = models()
    assert (await asking.decide("it rains", ["wet", "dry"], None, "me")).label == "wet"
    assert (await asking.decide("it rains", None, None, "me")).label == "spam"
    assert (await asking.decide("it rains", None, "other", "me")).model == "other"
    assert client.questions == [
        ("m", "it rains", ["wet", "dry"], "me"), ("c", "it rains", None, "me"), ("other", "it rains", None, "me"),
    ]  # fmt: skip


async def test_the_default_model_decides_among_labels_only() -> None:
    asking, client = models(default="d")
    await asking.decide("x", ["a", "b"], None, "")
    await asking.decide("x", None, None, "")
    assert [question[0] for question in client.questions] == ["d", "c"]


@pytest.mark.parametrize(
    ("text", "labels", "says"),
    [
        (" ", None, "input: it is empty"),
        ("x", ["a"], "labels: there are 1; give 2 to 20"),
        ("x", [str(number) for number in range(21)], "labels: there are 21"),
        ("x", ["a", "a"], "labels: 'a' is there twice"),
        ("x", ["a", ""], "labels: '' is empty"),
        ("x", ["a", " b"], "labels: ' b' is empty or begins with a space"),
    ],
)
async def test_what_can_not_be_decided_is_refused(text: str, labels: list[str] | None, says: str) -> None:
    asking, client = models()
    with pytest.raises(LuftpauseError, match=says):
        await asking.decide(text, labels, None, "")
    assert not client.questions


@pytest.mark.parametrize(
    ("classifying", "says"), [((), "no classifier is served"), (("a", "b"), "several are served; name one of a, b, or give labels")]
)
async def test_without_a_choice_the_classifiers_are_listed(classifying: tuple[str, ...], says: str) -> None:
    asking, _ = models(classifying=classifying)
    with pytest.raises(LuftpauseError, match=says):
        await asking.decide("x", None, None, "")


AWAY = TurnError("the dataplane at http://d can't be reached: refused", retry_after_s=1.0)


class Returning(ScriptedModel):
    """A dataplane that fails so many times before it lists models."""

    def __init__(self, failures: int, error: TurnError) -> None:
        super().__init__()
        self.failures, self.error = failures, error

    async def models(self) -> tuple[str, ...]:
        served = await super().models()
        if self.asked <= self.failures:
            raise self.error
        return served


async def test_a_dataplane_that_starts_anew_is_waited_for() -> None:
    client = Returning(2, AWAY)
    asking = Models(client, None, patience_seconds=60)
    assert await asyncio.gather(asking.choose(None), asking.choose(None)) == ["m", "m"]
    assert client.asked == 3  # both by one question


@pytest.mark.parametrize(("error", "patience_seconds"), [(AWAY, 0.0), (TurnError("no list of models", retry_after_s=None), 60.0)])
async def test_a_dataplane_that_stays_away_or_is_none_is_told(error: TurnError, patience_seconds: float) -> None:
    client = Returning(9, error)
    with pytest.raises(LuftpauseError, match=f"{error.message}; see that it is up, or name a model") as found:
        await Models(client, None, patience_seconds=patience_seconds).choose(None)
    assert (found.value.code, found.value.status, client.asked) == ("dataplane_unreachable", 502, 1)


def test_a_choice_among_labels() -> None:
    body = {"label": "a", "probabilities": {"a": 0.75, "b": 0.25}, "unscored": ["c"], "model": "served"}
    assert decision_of(json.dumps(body).encode(), "m") == Decision("a", {"a": 0.75, "b": 0.25}, ("c",), "served")


def test_a_classifier_names_the_likeliest_class_only() -> None:
    body = {"data": [{"index": 0, "label": "spam", "probs": [0.2, 0.7, 0.1], "num_classes": 3}]}
    found = decision_of(json.dumps(body).encode(), "m")
    assert (found.label, found.model, found.unscored) == ("spam", "m", ())
    assert found.probabilities == pytest.approx({"class 0": 0.2, "spam": 0.7, "class 2": 0.1})


@pytest.mark.parametrize(
    ("label", "names"),
    [
        (None, ["class 0", "class 1", "class 2"]),
        ("LABEL_1", ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ("1", ["0", "1", "2"]),
        ("level 11", ["class 0", "level 11", "class 2"]),
        ("class 0", ["class number 0", "class 0", "class number 2"]),
    ],
)
def test_every_class_has_a_name_of_its_own(label: str | None, names: list[str]) -> None:
    body = {"data": [{"index": 0, "label": label, "probs": [0.2, 0.7, 0.1], "num_classes": 3}]}
    found = decision_of(json.dumps(body).encode(), "m")
    assert found.label == names[1]
    assert found.probabilities == pytest.approx(dict(zip(names, [0.2, 0.7, 0.1], strict=True)))


def test_a_probability_that_is_no_number_moves_no_class() -> None:
    found = decision_of(b'{"data": [{"label": "spam", "probs": [NaN, 0.25, 0.75]}]}', "m")
    assert found.probabilities == {"class 0": 0.0, "class 1": 0.25, "spam": 0.75}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": []}', b'{"label": "a"}', b'{"label": "a", "probabilities": {"b": 1}}'])
def test_an_answer_that_decides_nothing_is_an_error(body: bytes) -> None:
    with pytest.raises(TurnError):
        decision_of(body, "m")
