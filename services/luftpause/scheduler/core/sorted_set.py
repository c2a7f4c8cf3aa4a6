"""How are ordered facts kept so that an old version stays valid and a new one costs logarithmic time?

A B-tree of tuples: a leaf is a tuple of items in order, an inner node has up to `WIDTH` kids. A change copies one path (1-2 us at 10,000
items); slices and `bisect` run in C, which makes wide nodes cheaper in Python than balanced binary trees.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")
WIDTH = 32  # most items of a leaf and kids of an inner node


class Inner(Struct, frozen=True, gc=False):
    """`lows[i]` is not above any item of `kids[i]`, and above all items of `kids[i - 1]`."""

    lows: tuple[Any, ...]
    kids: tuple[Any, ...]


class Halves(Struct, frozen=True, gc=False):
    """A node that has outgrown its width."""

    left: Any
    right: Any


Node = Any  # tuple (leaf) | Inner


class SortedSet(Struct, Generic[T], frozen=True, gc=False):
    """Distinct items that compare with each other, in ascending order."""

    root: Node = ()
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __iter__(self) -> Iterator[T]:
        return _walk(self.root)

    def __contains__(self, item: object) -> bool:
        node = self.root
        while type(node) is Inner:
            at = bisect_right(node.lows, item)  # pyright: ignore[reportArgumentType]
            node = node.kids[at - 1 if at else 0]
        at = bisect_left(node, item)
        return at < len(node) and node[at] == item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedSet) and self.size == other.size and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # two trees with equal items may differ in shape

    def first(self) -> T:
        """Its least item; IndexError if it is empty."""
        node = self.root
        while type(node) is Inner:
            node = node.kids[0]
        return node[0]

    def add(self, item: T) -> "SortedSet[T]":
        """With `item`; itself if it has it already."""
        old = self.root
        root = _add_below(old, item) if type(old) is Inner else _grown(old, item)
        if root is old:
            return self
        if type(root) is Halves:
            root = Inner((_low(root.left), _low(root.right)), (root.left, root.right))
        return SortedSet(root, self.size + 1)

    def remove(self, item: T) -> "SortedSet[T]":
        """Without `item`; itself if it did not have it."""
        old = self.root
        root = _remove_below(old, item) if type(old) is Inner else _shrunk(old, item)
        return self if root is old else SortedSet(root, self.size - 1)


def sorted_set(items: Iterable[T]) -> SortedSet[T]:
    made: SortedSet[T] = SortedSet()
    for item in items:
        made = made.add(item)
    return made


def _low(node: Node) -> Any:
    return node.lows[0] if type(node) is Inner else node[0]


def _walk(node: Node) -> Iterator[Any]:
    """Leaf by leaf: no frame of Python's is resumed per item."""
    return chain.from_iterable(map(_walk, node.kids)) if type(node) is Inner else iter(node)


def _grown(leaf: tuple[Any, ...], item: Any) -> Node:
    """The leaf with `item`; the same object if it has it; Halves if it had to be split."""
    at = bisect_left(leaf, item)
    if at < len(leaf) and leaf[at] == item:
        return leaf
    items = list(leaf)  # changing a list and freezing it is cheaper than joining slices
    items.insert(at, item)
    grown = tuple(items)
    if len(grown) <= WIDTH:
        return grown
    # Time-ordered items arrive at the end: leave the left leaf nearly full then, so that leaves don't stay half empty.
    cut = WIDTH - 4 if at == len(leaf) else len(grown) // 2
    return Halves(grown[:cut], grown[cut:])


def _add_below(node: Inner, item: Any) -> Node:
    lows, kids = node.lows, node.kids
    at = bisect_right(lows, item)
    if at:
        at -= 1
    else:
        lows = (item, *lows[1:])
    old = kids[at]
    new = _add_below(old, item) if type(old) is Inner else _grown(old, item)
    if new is old:
        return node
    if type(new) is not Halves:
        return Inner(lows, _put(kids, at, new))
    lows = (*lows[: at + 1], _low(new.right), *lows[at + 1 :])
    kids = (*kids[:at], new.left, new.right, *kids[at + 1 :])
    if len(kids) <= WIDTH:
        return Inner(lows, kids)
    cut = len(kids) // 2
    return Halves(Inner(lows[:cut], kids[:cut]), Inner(lows[cut:], kids[cut:]))


def _put(kids: tuple[Node, ...], at: int, kid: Node) -> tuple[Node, ...]:
    """With this kid there."""
    items = list(kids)
    items[at] = kid
    return tuple(items)


def _shrunk(leaf: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    """The leaf without `item`; the same object if it was not there; an empty one if nothing is left."""
    at = bisect_left(leaf, item)
    if at == len(leaf) or leaf[at] != item:
        return leaf
    items = list(leaf)
    del items[at]
    return tuple(items)


def _remove_below(node: Inner, item: Any) -> Node:
    at = bisect_right(node.lows, item)
    if at:
        at -= 1
    old = node.kids[at]
    new = _remove_below(old, item) if type(old) is Inner else _shrunk(old, item)
    if new is old:
        return node
    if type(new) is Inner or len(new) >= WIDTH // 4:  # the usual case
        return Inner(node.lows, _put(node.kids, at, new))
    return _with_small_kid(node, at, new)


def _with_small_kid(node: Inner, at: int, new: tuple[Any, ...]) -> Node:
    """The node with a leaf that has shrunk much: an empty one goes, a small one joins the next one."""
    lows, kids = node.lows, node.kids
    after: Node = kids[at + 1] if at + 1 < len(kids) else None
    if not new:
        lows, kids = (*lows[:at], *lows[at + 1 :]), (*kids[:at], *kids[at + 1 :])
    elif after is not None and type(after) is not Inner and len(after) < WIDTH // 2:
        lows, kids = (*lows[: at + 1], *lows[at + 2 :]), (*kids[:at], (*new, *after), *kids[at + 2 :])
    else:
        kids = _put(kids, at, new)
    return kids[0] if len(kids) == 1 else Inner(lows, kids)
