"""What did the dataplane's answer to `POST /v1/decide` decide?"""

import json
import math
from typing import Any

from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.ports import Decision, Json, TurnError


def decision_of(body: bytes, model: str) -> Decision:
    """Of a choice among labels, or of a classifier (vLLM's `/classify`). Raises TurnError where it is neither."""
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not is_object(answer):
        raise TurnError("the engine answered a decision with something that is no JSON object", retry_after_s=None)
    named = answer.get("model")
    model = named if isinstance(named, str) and named else model
    return _among_labels(answer, model) if "label" in answer else _of_classifier(answer, model)


def _among_labels(answer: Json, model: str) -> Decision:
    given: Any = answer.get("probabilities")
    probabilities = {label: float(value) for label, value in given.items() if _is_number(value)} if is_object(given) else {}
    unscored: Any = answer.get("unscored")
    if not probabilities or answer["label"] not in probabilities:
        raise TurnError("the dataplane's decision lacks its probabilities", retry_after_s=None)
    return Decision(answer["label"], probabilities, tuple(map(str, unscored)) if is_list(unscored) else (), model)


def _of_classifier(answer: Json, model: str) -> Decision:
    """The engine names the likeliest class only, or none where its model's configuration has no names."""
    data: Any = answer.get("data")
    first: Any = data[0] if is_list(data) and data else None
    label: Any = first.get("label") if is_object(first) else None
    named = isinstance(label, str) and bool(label)
    found: Any = first.get("probs") if is_object(first) else None
    probs = [float(each) if _is_number(each) else 0.0 for each in found] if is_list(found) else []
    total = sum(probs)
    if not total and not named:
        raise TurnError("the classifier's answer has neither a label nor probabilities", retry_after_s=None)
    if not total:
        return Decision(label, {label: 1.0}, (), model)
    likeliest = probs.index(max(probs))
    names = _class_names(label if named else "", likeliest, len(probs))
    return Decision(names[likeliest], {name: each / total for name, each in zip(names, probs, strict=True)}, (), model)


def _class_names(label: str, likeliest: int, count: int) -> list[str]:
    """Distinct names of all classes by the one that is known: where it is a numbered one (`LABEL_1`), the others are so too.

    Else they are called by their numbers: `class 2`.
    """
    stem = label.removesuffix(str(likeliest))
    numbered = stem != label and not stem[-1:].isdecimal()
    if numbered or not label:
        return [f"{stem if numbered else 'class '}{index}" for index in range(count)]
    kind = "class number" if label.startswith("class ") else "class"
    return [label if index == likeliest else f"{kind} {index}" for index in range(count)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
