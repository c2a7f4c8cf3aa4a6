"""Which arguments would a model plausibly give to this JSON schema?"""

import hashlib
from typing import Any

Json = dict[str, Any]

DEPTH_MAX = 8
_ASPECTS = ("background", "figures", "recent changes", "open questions", "criticism", "examples")
_COMMANDS = frozenset({"cmd", "command", "commands", "code", "script"})
_CITIES = ("Bern", "Porto", "Tartu", "Graz", "Lund")


def plausible(schema: Json, *, topic: str, number: int) -> Any:
    """A value that fits the schema (what it can't express is not tried: patterns, conditions). `number` makes calls of one run differ."""
    return _Maker(schema, topic, number).make(schema, "", 0)


class _Maker:
    def __init__(self, root: Json, topic: str, number: int) -> None:
        self._root = root
        self._topic = topic
        self._number = number

    def make(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolved(schema, depth)
        if choices := ([schema["const"]] if "const" in schema else schema.get("enum")):
            return choices[self._number % len(choices)]
        return self._of_type(schema, name, depth)

    def _of_type(self, schema: Json, name: str, depth: int) -> Any:
        match self._type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self.make(schema.get("items"), name, depth + 1) for _ in range(max(1, schema.get("minItems", 1)))]
            case "integer" | "number":
                return self._number_in(schema)
            case "boolean" | "null" as kind:
                return self._number % 2 == 0 if kind == "boolean" else None
            case _:
                return self._string(schema, name)

    def _resolved(self, schema: Any, depth: int) -> Json:
        """References followed, alternatives decided (the first that is not null), `allOf` joined. What is no schema allows everything."""
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return {}
        found: Json = schema  # pyright: ignore[reportUnknownVariableType]
        if "$ref" in found:
            return self._resolved(self._referred(str(found["$ref"])), depth + 1)
        for key in ("anyOf", "oneOf"):
            alternatives: list[Json] = found.get(key) or []
            if options := [option for option in alternatives if option.get("type") != "null"]:
                return self._resolved({**found, key: None, **options[0]}, depth + 1)
        parts: list[Json] = found.get("allOf") or []
        for part in parts:
            found = {**found, **part, "properties": {**found.get("properties", {}), **part.get("properties", {})}}
        return found

    def _referred(self, reference: str) -> Any:
        target: Any = self._root
        for part in filter(None, reference.removeprefix("#").split("/")):
            target = target.get(part) if isinstance(target, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return target  # pyright: ignore[reportUnknownVariableType]

    def _type(self, schema: Json) -> str:
        kind: Any = schema.get("type", "object" if "properties" in schema else "string")
        kinds: list[str] = [kind] if isinstance(kind, str) else list(kind)
        return next((each for each in kinds if each != "null"), "null")

    def _object(self, schema: Json, depth: int) -> Json:
        properties: Json = schema.get("properties") or {}
        wanted: list[str] = list(schema.get("required") or ()) or list(properties)[:1]
        return {name: self.make(properties.get(name, {}), name, depth + 1) for name in wanted}

    def _number_in(self, schema: Json) -> int | float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
        high = schema.get("maximum", low + 99)
        value = low + (self._number * 7 + len(self._topic)) % max(1, int(high - low) + 1)
        return min(value, high)

    def _string(self, schema: Json, name: str) -> str:
        examples: list[Any] = schema.get("examples") or []
        if examples and isinstance(examples[0], str):
            return examples[self._number % len(examples)]
        text = self._words(name.lower())
        text = text[: schema.get("maxLength", len(text))]
        return text.ljust(schema.get("minLength", 0), ".")

    def _words(self, name: str) -> str:
        mark = hashlib.blake2b(self._topic.encode(errors="replace"), digest_size=2).hexdigest()
        if name in _COMMANDS:  # a harness may run it: never words of the task
            return f"echo note-{mark}-{self._number}"
        if name == "id" or name.endswith("_id"):
            return f"note-{mark}-{self._number}"
        if "path" in name or "file" in name:
            return f"notes/{mark}-{self._number}.md"
        if "city" in name or "location" in name:
            return _CITIES[(len(self._topic) + self._number) % len(_CITIES)]
        aspect = _ASPECTS[self._number % len(_ASPECTS)]
        more = "" if self._number < len(_ASPECTS) else f" {self._number // len(_ASPECTS) + 1}"
        return f"{self._topic}, {aspect}{more}"
