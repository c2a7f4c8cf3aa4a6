"""Which label does a model's first token stand for?"""

import json
import math
from typing import Any

import pytest

from luftpause.dataplane.decide import Question, answer_of, chat_body, read_question
from luftpause.dataplane.rejection import Rejection

YES_NO = Question("m", "is it?", ("yes", "no"))
SHARED = Question("m", "which?", ("positive", "negative", "neutral"))  # two begin alike


def completion(*entries: tuple[Any, float], **more: Any) -> bytes:
    top = [{"token": token, "logprob": math.log(p) if p > 0 else -9999.0} | more for token, p in entries]
    content = [{"token": top[0]["token"], "logprob": top[0]["logprob"], "top_logprobs": top}]
    return json.dumps({"model": "served", "choices": [{"logprobs": {"content": content}}], "usage": {"prompt_tokens": 5}}).encode()


def decided(question: Question, answer: bytes) -> dict[str, Any]:
    found = answer_of(question, answer)
    assert isinstance(found, bytes), found
    return json.loads(found)


def test_forms_with_and_without_a_space_are_added_up_and_the_sum_is_one() -> None:
    found = decided(YES_NO, completion((" yes", 0.3), ("no", 0.2), ("yes", 0.1), ("maybe", 0.3)))
    assert (found["label"], found["unscored"], found["model"], found["usage"]) == ("yes", [], "served", {"prompt_tokens": 5})
    assert found["probabilities"] == pytest.approx({"yes": 2 / 3, "no": 1 / 3})
    assert sum(found["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("space", [" ", "▁", "Ġ"])
def test_a_space_in_every_spelling(space: str) -> None:
    assert decided(YES_NO, completion((space + "no", 0.5), ("yes", 0.4)))["label"] == "no"


def test_a_label_whose_token_was_not_returned_is_unscored() -> None:
    question = Question("m", "x", ("yes", "no", "maybe"))
    found = decided(question, completion(("no", 0.5), ("maybe", 0.0), ("never", 0.3)))
    assert (found["label"], found["probabilities"], found["unscored"]) == ("no", {"no": 1.0}, ["yes", "maybe"])


def test_of_several_beginnings_of_a_label_the_longest_is_its_first_token() -> None:
    question = Question("m", "x", ("refund", "other"))
    found = decided(question, completion(("ref", 0.2), ("r", 0.4), ("refunds", 0.1), ("oth", 0.2)))
    assert found["probabilities"] == pytest.approx({"refund": 0.5, "other": 0.5})


def test_labels_that_may_share_a_first_token_get_letters() -> None:
    assert YES_NO.names == ("yes", "no")
    assert SHARED.names == ("A", "B", "C")
    assert Question("m", "x", ("да", "нет")).names == ("A", "B")  # their first bytes are the same
    system = json.loads(chat_body(SHARED))["messages"][0]["content"]
    assert "A: positive\nB: negative\nC: neutral" in system
    found = decided(SHARED, completion(("B", 0.6), (" A", 0.2), ("positive", 0.1), ("C.", 0.1)))
    assert found["probabilities"] == pytest.approx({"negative": 0.75, "positive": 0.25})
    assert (found["label"], found["unscored"]) == ("negative", ["neutral"])


def test_bytes_of_a_token_go_before_its_text() -> None:
    assert decided(YES_NO, completion(("?", 0.9), bytes=list(b" no")))["label"] == "no"
    assert decided(YES_NO, completion(("no", 0.9), bytes=["odd"]))["label"] == "no"
    assert decided(YES_NO, completion(("no", 0.9), bytes=[999]))["label"] == "no"


def test_without_alternatives_the_token_itself_counts() -> None:
    answer = {"choices": [{"logprobs": {"content": [{"token": "no", "logprob": -0.1, "top_logprobs": []}]}}]}
    assert decided(YES_NO, json.dumps(answer).encode())["label"] == "no"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"{}", "no_logprobs"),
        (b"not json", "no_logprobs"),
        (b'{"choices": [{"logprobs": null}]}', "no_logprobs"),
        (b'{"choices": [{"logprobs": {"content": []}}]}', "no_logprobs"),
        (completion(("maybe", 0.9)), "undecided"),
        (completion(("yes", 0.0)), "undecided"),
        (b'{"choices": [{"logprobs": {"content": [{"token": "yes", "logprob": NaN}]}}]}', "undecided"),
        (b'{"choices": [{"logprobs": {"content": [{"token": 5, "logprob": "x"}]}}]}', "undecided"),
    ],
)
def test_an_answer_that_decides_nothing_is_an_error(answer: bytes, code: str) -> None:
    found = answer_of(YES_NO, answer)
    assert isinstance(found, Rejection)
    assert (found.status, found.code) == (502, code)


def test_one_token_is_asked_for_with_its_alternatives() -> None:
    body = json.loads(chat_body(YES_NO))
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"], body["model"]) == (1, True, 20, "m")
    assert body["messages"][1] == {"role": "user", "content": "is it?"}
    assert "- yes\n- no" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"labels": ["one"]}, "bad_labels"),
        ({"labels": [str(n) for n in range(21)]}, "bad_labels"),
        ({"labels": ["a", "a"]}, "bad_labels"),
        ({"labels": ["a", ""]}, "bad_labels"),
        ({"labels": ["a", " b"]}, "bad_labels"),
        ({"labels": ["a", 5]}, "bad_labels"),
        ({"labels": "a,b"}, "bad_labels"),
        ({"labels": {}}, "bad_labels"),
        ({"input": ["x"]}, "bad_input"),
        ({"input": ""}, "bad_input"),
        ({"input": None}, "bad_input"),
        ({"model": ""}, "no_model"),
        ({"model": 5}, "bad_field"),
    ],
)
def test_a_bad_question_is_told_what_is_wrong(more: dict[str, Any], code: str) -> None:
    found = read_question(json.dumps({"model": "m", "input": "x", "labels": ["a", "b"]} | more).encode())
    assert isinstance(found, Rejection)
    assert (found.status, found.code) == (400, code)


def test_a_question_with_labels_and_one_without() -> None:
    assert read_question(b'{"model": "m", "input": "x", "labels": ["a", "b"]}') == Question("m", "x", ("a", "b"))
    assert read_question(b'{"model": "m", "input": ["x", "y"]}') is None
    assert read_question(b'{"model": "m", "input": "x", "labels": null}') is None
