"""Which prefixes does an engine still hold in its KV memory, and what goes first when room is needed?"""

import heapq
from collections.abc import Sequence

from msgspec import Struct


class Segment(Struct, frozen=True, gc=False):
    """A stretch of a conversation. `key` names the whole conversation up to its end, so equal keys mean equal prefixes."""

    key: int
    tokens: int


class _Node:
    __slots__ = ("children", "key", "locks", "parent", "resident", "tokens", "used")

    def __init__(self, segment: Segment, parent: "_Node | None") -> None:
        self.key = segment.key
        self.tokens = segment.tokens
        self.resident = 0  # its first tokens that are in memory; less than `tokens` only where it has no children
        self.parent = parent
        self.children = 0
        self.locks = 0
        self.used = 0


class PrefixCache:
    """A prefix tree of segments.

    Locked paths belong to requests in the engine, the rest may be evicted: leaves first, least recently used.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._leaves: list[tuple[int, int, _Node]] = []  # (used, number, node); a node that was used since has a newer entry, or none
        self._clock = 0
        self._number = 0
        self.resident = 0
        self.locked = 0
        self.evicted = 0

    @property
    def evictable(self) -> int:
        return self.resident - self.locked

    def match(self, path: Sequence[Segment]) -> int:
        """How many tokens of this conversation, from its beginning, are in memory."""
        tokens = 0
        for segment in path:
            node = self._nodes.get(segment.key)
            if node is None:
                break
            tokens += node.resident
            if node.resident < node.tokens:
                break
        return tokens

    def unlocked(self, path: Sequence[Segment]) -> int:
        """How many tokens `lock` would take from what may be evicted."""
        tokens = 0
        for segment in path:
            node = self._nodes.get(segment.key)
            if node is None:
                break
            tokens += 0 if node.locks else node.resident
            if node.resident < node.tokens:
                break
        return tokens

    def lock(self, path: Sequence[Segment]) -> int:
        """Keep what `match` finds; returns how many segments are locked now."""
        depth = 0
        for segment in path:
            node = self._nodes.get(segment.key)
            if node is None or node.resident == 0:
                break
            self._hold(node)
            depth += 1
            if node.resident < node.tokens:
                break
        return depth

    def insert(self, path: Sequence[Segment], locked: int, tokens: int | None = None) -> tuple[int, int]:
        """Store the first `tokens` (all) of this conversation and lock it; the request has locked its first `locked` segments before.

        Returns how many tokens were not stored yet (the caller has made room for them) and how many segments are locked now.
        """
        left = sum(segment.tokens for segment in path) if tokens is None else tokens
        parent: _Node | None = None
        added = depth = 0
        for segment in path:
            if left == 0:
                break
            node = self._nodes.get(segment.key) or self._grow(segment, parent)
            if depth >= locked:
                self._hold(node)
            depth += 1
            more = max(0, min(node.tokens, left) - node.resident)
            node.resident += more
            self.resident += more
            self.locked += more
            added += more
            left -= min(node.tokens, left)
            parent = node
        return added, depth

    def unlock(self, path: Sequence[Segment], depth: int) -> None:
        """The request needs the first `depth` segments no longer; they stay until room is needed."""
        self._clock += 1
        for segment in reversed(path[:depth]):
            node = self._nodes[segment.key]
            node.locks -= 1
            node.used = self._clock
            if node.locks == 0:
                self.locked -= node.resident
                self._offer(node)

    def evict(self, tokens: int) -> int:
        """Free up to `tokens` tokens; returns how many were freed."""
        freed = 0
        while freed < tokens and self._leaves:
            used, number, node = heapq.heappop(self._leaves)
            if node.locks or node.used != used or self._nodes.get(node.key) is not node:
                continue
            take = min(node.resident, tokens - freed)
            node.resident -= take
            self.resident -= take
            freed += take
            if node.resident:
                heapq.heappush(self._leaves, (used, number, node))
            else:
                self._drop(node)
        self.evicted += freed
        return freed

    def _grow(self, segment: Segment, parent: _Node | None) -> _Node:
        node = _Node(segment, parent)
        self._nodes[segment.key] = node
        if parent is not None:
            parent.children += 1
        return node

    def _hold(self, node: _Node) -> None:
        if node.locks == 0:
            self.locked += node.resident
        node.locks += 1

    def _offer(self, node: _Node) -> None:
        if node.children == 0:
            self._number += 1
            heapq.heappush(self._leaves, (node.used, self._number, node))

    def _drop(self, node: _Node) -> None:
        del self._nodes[node.key]
        parent = node.parent
        if parent is None:
            return
        parent.children -= 1
        if parent.locks == 0:
            self._offer(parent)
