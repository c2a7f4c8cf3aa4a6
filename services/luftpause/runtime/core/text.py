"""How is text from outside made fit for a journal line and for the next turn?"""

import re
from typing import Any, Final

from luftpause.runtime.core.json_types import is_list, is_object

EXCERPT_CHARS: Final = 300
CUT_NOTE: Final = re.compile(r"\n\[cut: [\d,]+ of [\d,]+ characters shown\]\Z")


def whole(text: str) -> str:
    """`text` without lone surrogates: halves that belong together are joined, a lone half becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def whole_json(value: Any) -> Any:
    """`whole` for every string of a JSON value, keys included."""
    if isinstance(value, str):
        return whole(value)
    if is_object(value):
        return {whole(key): whole_json(each) for key, each in value.items()}
    return [whole_json(each) for each in value] if is_list(value) else value


def shorten(text: str, chars_max: int) -> str:
    """`text`, or its beginning and a note of what was cut."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}\n[cut: {chars_max:,} of {len(text):,} characters shown]"


def excerpt(body: bytes) -> str:
    """The beginning of an answer that is not what it should be, such as a page of a proxy in between, on one line."""
    text = re.sub(r"<[^>]*>", " ", body.decode(errors="replace"))
    text = " ".join(text.split())
    return (text[:EXCERPT_CHARS] + "…" if len(text) > EXCERPT_CHARS else text) or "empty body"
