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
    """The engine names the likeliest class only; the others are called by their numbers, such as `class 2`."""
    data: Any = answer.get("data")
    first: Any = data[0] if is_list(data) and data else None
    label: Any = first.get("label") if is_object(first) else None
    if not isinstance(label, str):
        raise TurnError("the classifier's answer names no label", retry_after_s=None)
    found: Any = first.get("probs")
    probs = [float(each) for each in found if _is_number(each)] if is_list(found) else []
    if not probs:
        return Decision(label, {label: 1.0}, (), model)
    likeliest = probs.index(max(probs))
    total = sum(probs) or 1.0
    names = {index: label if index == likeliest else f"class {index}" for index in range(len(probs))}
    return Decision(label, {names[index]: each / total for index, each in enumerate(probs)}, (), model)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
