"""Which calls stand in a Python list such as `[name(arg=1)]`, without running anything?"""

import ast
import warnings
from typing import Any, Final

from luftpause.runtime.ports import Json

CHARS_MAX: Final = 20_000
JSON_NAMES: Final = {"true": True, "false": False, "null": None}


class _NotLiteral(Exception):  # noqa: N818  (the text is something else, which is no fault)
    pass


def python_calls(text: str) -> tuple[tuple[str, Json], ...] | None:
    """Names and arguments of `[a(x=1), b()]` or of one `a(x=1)`; None: the text is something else.

    Arguments must be literals given by name. `a.call(x=1)`, as Llama writes it, is `a(x=1)`.
    """
    text = text.strip()
    if len(text) > CHARS_MAX or not text.endswith((")", "]")):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is the model's business
            body = ast.parse(text, mode="eval").body
        return tuple(_call(each) for each in (body.elts if isinstance(body, ast.List) else [body])) or None
    except (SyntaxError, ValueError, RecursionError, MemoryError, _NotLiteral):
        return None


def _call(node: ast.expr) -> tuple[str, Json]:
    if not isinstance(node, ast.Call) or node.args:
        raise _NotLiteral
    target = node.func
    if isinstance(target, ast.Attribute) and target.attr == "call":
        target = target.value
    if not isinstance(target, ast.Name):
        raise _NotLiteral
    arguments: Json = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _NotLiteral
        arguments[keyword.arg] = _literal(keyword.value)
    return target.id, arguments


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in JSON_NAMES:
            return JSON_NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case _:
            raise _NotLiteral


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _NotLiteral
