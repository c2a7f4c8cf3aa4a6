"""Which token does a command show, and to whom?"""

import pytest

from luftpause.cli import stack
from luftpause.cli.tokens import headers, token_for
from luftpause.cli.up import how_to_attach
from luftpause.kit.errors import ConfigError

TOKEN = "t" * 32


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8080/v1", TOKEN),
        ("http://localhost:7000/mcp", TOKEN),
        ("http://[::1]:8080", TOKEN),
        ("https://api.example/v1", ""),
    ],
)
def test_luftpauses_own_token_goes_nowhere_else_unasked(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUFTPAUSE_TOKEN", TOKEN)
    assert token_for(url, None) == shown
    assert token_for(url, "LUFTPAUSE_TOKEN") == TOKEN


def test_a_variable_that_was_named_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINE", raising=False)
    with pytest.raises(ConfigError, match="--token-env: the environment variable MINE is not set"):
        token_for("https://api.example/v1", "MINE")
    monkeypatch.setenv("MINE", f" {TOKEN}\n")
    assert headers(token_for("https://api.example/v1", "MINE")) == {"authorization": f"Bearer {TOKEN}"}
    assert headers("") == {}


def test_hints_name_the_variable_where_a_token_is_needed() -> None:
    with_token = how_to_attach(stack.DEFAULT_ADDRESSES, "m", with_token=True)
    assert with_token.count('"Authorization: Bearer $LUFTPAUSE_TOKEN"') == 2
    assert "Authorization" not in how_to_attach(stack.DEFAULT_ADDRESSES, "m", with_token=False)
