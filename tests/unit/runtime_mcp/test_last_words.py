"""Are a tool server's last words told, and no secret of its configuration?"""

import pytest

from luftpause.kit.config import UpstreamConfig
from luftpause.runtime.tools.last_words import CHARS_MAX, LastWords

CONFIG = UpstreamConfig(
    command="server",
    args=("serve", "--api-key=sesame-1", "--token", "sesame-2", "-v", "--dir", "/srv/data", "postgres://me:sesame-3@db/x"),
    env={"PASSWORD": "sesame-12", "LEVEL": "info"},
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no key sesame-1", "no key …"),
        ("sesame-12, sesame-2 and sesame-1", "…, … and …"),
        ("can't reach postgres://me:sesame-3@db/x", "can't reach postgres://…@db/x"),
        ("/srv/data is empty, serve ends at level info", "/srv/data is empty, serve ends at level info"),
    ],
)
def test_what_the_configuration_gives_it_of_secrets_is_left_out(said: str, told: str) -> None:
    words = LastWords(CONFIG)
    words.heard(said)
    assert words.text == told


def test_the_last_line_with_words_counts_and_is_cut() -> None:
    words = LastWords(CONFIG)
    for line in ("first", "x" * 500, "", "  "):
        words.heard(line)
    assert words.text == "x" * CHARS_MAX
