"""Which JSON object is the body of an answer, whatever its sender made of it?"""

from typing import Any, cast

import orjson


def json_object(body: bytes) -> dict[str, Any]:
    """Empty for what is no JSON, or no object."""
    try:
        read: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}
