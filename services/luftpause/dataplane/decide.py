"""Which of some labels does a model choose, and how sure is it? The prompt, and what the answer's first token says (spec/4 "decide").

No tokeniser is at hand, so two labels may share a first token as soon as they share a first byte; then letters stand for them.
"""

import math
from typing import Final, TypeGuard, cast

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.bodies import NO_MODEL, decode
from luftpause.dataplane.observe import Json, as_object, as_objects, as_text, parse
from luftpause.dataplane.rejection import Rejection

LABELS_MIN, LABELS_MAX = 2, 20
TOP_LOGPROBS: Final = 20
LETTERS: Final = "ABCDEFGHIJKLMNOPQRST"
SPACES: Final = (b" ", "\u2581".encode(), "\u0120".encode())  # as text, as SentencePiece and as GPT-2 write it

BY_NAME: Final = "Classify the text of the user. Answer with one of these labels and nothing else:\n"
BY_LETTER: Final = "Classify the text of the user. Answer with the letter of the label that fits and nothing else:\n"


class Question(Struct, frozen=True):
    """Which of `labels` fits `text`?"""

    model: str
    text: str
    labels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the model is to answer, in the order of the labels: themselves, or letters."""
        distinct = len({label.encode("utf-8", "surrogatepass")[:1] for label in self.labels}) == len(self.labels)
        return self.labels if distinct else tuple(LETTERS[: len(self.labels)])


class Body(Struct, gc=False):
    model: str | None = None
    input: Raw | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET


_body: Final = msgspec.json.Decoder(Body)


def read_question(body: bytes) -> Question | Rejection | None:
    """None: it has no labels, so it is a classifier's to answer."""
    found = decode(body, _body, _body)
    if isinstance(found, Rejection):
        return found
    if found.labels is UNSET or (labels := parse(bytes(found.labels))) is None:
        return None
    if not found.model:
        return NO_MODEL
    text = None if found.input is UNSET else parse(bytes(found.input))
    if not isinstance(text, str) or not text:
        return Rejection(400, "bad_input", "with `labels`, `input` must be a text that is not empty")
    if not _are_labels(labels):
        rule = f"`labels` must be a list of {LABELS_MIN} to {LABELS_MAX} different texts; none may be empty or begin with a space"
        return Rejection(400, "bad_labels", rule)
    return Question(found.model, text, tuple(labels))


def _are_labels(labels: object) -> TypeGuard[list[str]]:
    if not isinstance(labels, list):
        return False
    texts = [each for each in cast("list[object]", labels) if isinstance(each, str) and each and not each[0].isspace()]
    return LABELS_MIN <= len(texts) == len(cast("list[object]", labels)) <= LABELS_MAX and len(set(texts)) == len(texts)


def chat_body(question: Question) -> bytes:
    """The Chat Completions request that asks it: one token, as the model itself would weigh it."""
    names = question.names
    if names == question.labels:
        system = BY_NAME + "\n".join(f"- {label}" for label in names)
    else:
        system = BY_LETTER + "\n".join(f"{letter}: {label}" for letter, label in zip(names, question.labels, strict=True))
    body = {
        "model": question.model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question.text}],
        "max_tokens": 1,
        "temperature": 1,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
    }
    return msgspec.json.encode(body)


def answer_of(question: Question, completion: bytes) -> bytes | Rejection:
    """`label`, `probabilities` (of the scored labels, sum 1) and `unscored` as JSON; `completion` is the engine's answer."""
    found = as_object(parse(completion))
    choices = as_objects(found.get("choices"))
    tokens = as_objects(as_object(choices[0].get("logprobs")).get("content")) if choices else []
    if not tokens:
        return Rejection(502, "no_logprobs", "the engine gave no log-probabilities; `labels` need a replica whose engine has them")
    scores = _scores(question, as_objects(tokens[0].get("top_logprobs")) or tokens[:1])
    total = sum(scores.values())
    if not total:
        return Rejection(
            502, "undecided", "none of the labels was among the model's 20 likeliest answers; word the labels or the input anew"
        )
    probabilities = {label: score / total for label, score in scores.items()}
    answer: Json = {
        "object": "decision",
        "model": as_text(found.get("model")) or question.model,
        "label": max(probabilities, key=probabilities.__getitem__),
        "probabilities": probabilities,
        "unscored": [label for label in question.labels if label not in probabilities],
        "usage": found.get("usage"),
    }
    return orjson.dumps(answer)


def _scores(question: Question, entries: list[Json]) -> dict[str, float]:
    """Label to probability, for those labels of which a first token was returned."""
    tokens = [(token, probability) for entry in entries if (token := _token(entry)) and (probability := _probability(entry)) > 0]
    scores: dict[str, float] = {}
    for label, name in zip(question.labels, question.names, strict=True):
        score = _first_token(name.encode("utf-8", "surrogatepass"), tokens)
        if score:
            scores[label] = score
    return scores


def _first_token(name: bytes, tokens: list[tuple[bytes, float]]) -> float:
    """The probability of the longest token that begins the name, with and without a space before it added up."""
    plain: dict[bytes, float] = {}
    spaced: dict[bytes, float] = {}
    for token, probability in tokens:
        bare = _without_space(token)
        if bare and name.startswith(bare):
            (plain if bare == token else spaced)[bare] = probability
    return sum(form[max(form, key=len)] for form in (plain, spaced) if form)


def _without_space(token: bytes) -> bytes:
    for space in SPACES:
        if token.startswith(space):
            return token[len(space) :]
    return token


def _token(entry: Json) -> bytes:
    """Its bytes, where the engine gives them: a token may be half a character."""
    numbers = entry.get("bytes")
    if isinstance(numbers, list) and numbers:
        try:
            return bytes(numbers)  # pyright: ignore[reportUnknownArgumentType]
        except (TypeError, ValueError):
            pass
    return as_text(entry.get("token")).encode("utf-8", "surrogatepass")


def _probability(entry: Json) -> float:
    value = entry.get("logprob")
    return math.exp(min(0.0, value)) if isinstance(value, int | float) and not math.isnan(value) else 0.0
