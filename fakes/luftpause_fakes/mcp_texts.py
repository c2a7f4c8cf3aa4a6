"""What do the fake tools find? The same question always finds the same text."""

import hashlib

_SOURCES = (
    "The almanac",
    "A survey of 2019",
    "The municipal archive",
    "The field guide",
    "A review in the quarterly",
    "The museum's catalogue",
)
_FINDINGS = (
    "lists {count} entries, most of them from the coast",
    "counts {count} cases and calls the trend steady",
    "gives {count} as the figure for last year, up by {percent} %",
    "names {count} places and describes {percent} % of them in detail",
    "puts the mean at {count} and warns of a spread of {percent} %",
)
_NOTES = (
    "Two later sources agree.",
    "The older figure is lower.",
    "No source contradicts it.",
    "Details differ by region.",
)


def found(query: str, *, deep: bool = False) -> str:
    """A short result that names the question; `deep` finds three sources instead of one."""
    lines = [_one(query, number) for number in range(3 if deep else 1)]
    return f"On {query.strip() or 'nothing'}: " + " ".join(lines)


def _one(query: str, number: int) -> str:
    digest = hashlib.blake2b(f"{number}:{query}".encode(errors="replace"), digest_size=8).digest()
    source = _SOURCES[digest[0] % len(_SOURCES)]
    finding = _FINDINGS[digest[1] % len(_FINDINGS)].format(count=40 + int.from_bytes(digest[2:4], "big") % 9000, percent=2 + digest[4] % 37)
    return f"{source} {finding}. {_NOTES[digest[5] % len(_NOTES)]}"
