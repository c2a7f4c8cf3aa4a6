"""What did a tool server last write to its standard error, without the secrets that its configuration gives it?"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from luftpause.kit.config import UpstreamConfig

CHARS_MAX: Final = 200
SECRET_CHARS_MIN: Final = 6
_NAMES_A_SECRET: Final = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_LOGIN: Final = re.compile(r"(?<=://)[^\s/@]+(?=@)")


class LastWords:
    """Of one server. Secret are all values of its `env`, arguments whose name says so, and what stands before `@` in an address."""

    def __init__(self, config: UpstreamConfig) -> None:
        self.text = ""
        self._secrets = sorted({*config.env.values(), *_secret(config.args)}, key=len, reverse=True)

    def heard(self, line: str) -> None:
        """A line; one without words leaves those before."""
        for secret in self._secrets:
            line = line.replace(secret, "…") if len(secret) >= SECRET_CHARS_MIN else line
        self.text = _LOGIN.sub("…", line).strip()[:CHARS_MAX] or self.text


def _secret(args: Sequence[str]) -> Iterator[str]:
    """Of `--api-key=x` and `--api-key x` the x."""
    before = ""
    for arg in args:
        name, _, value = arg.partition("=")
        if value and _NAMES_A_SECRET.search(name):
            yield value
        elif before.startswith("-") and _NAMES_A_SECRET.search(before) and not arg.startswith("-"):
            yield arg
        before = arg if "=" not in arg else ""
