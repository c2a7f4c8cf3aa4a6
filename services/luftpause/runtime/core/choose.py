"""Which of the upstream tools may a run use?"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from luftpause.runtime.ports import ToolSpec


def allowed(tools: Mapping[str, ToolSpec], patterns: tuple[str, ...] | None) -> dict[str, ToolSpec]:
    """The tools that a name or glob of `patterns` means, in the order of `tools`; None: all."""
    if patterns is None:
        return dict(tools)
    return {name: tool for name, tool in tools.items() if any(matches(tool, pattern) for pattern in patterns)}


def matches(tool: ToolSpec, pattern: str) -> bool:
    """By the name that engines see, its server's name for it, or both: `server__tool`."""
    names = (tool.name, tool.original, f"{tool.server}__{tool.original}")
    return any(fnmatchcase(name, pattern) for name in names)
