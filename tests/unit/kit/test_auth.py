"""Which tokens open which door?"""

import logging
from pathlib import Path

import pytest

from luftpause.kit.auth import (
    EVERYBODY,
    LOOK_SECONDS,
    SEEN_MAX,
    Access,
    Tokens,
    bearer,
    cluster_token,
    from_environment,
    is_loopback,
    tokens,
    unauthorized,
    warn_if_open,
)
from luftpause.kit.errors import ConfigError
from luftpause.kit.logs import Log

GOOD, OTHER = "a" * 32, "b" * 32


def written(folder: Path, text: str) -> Path:
    path = folder / "tokens.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_without_tokens_everybody_may_call() -> None:
    door = Tokens()
    assert not door.required
    assert door.access(None) == EVERYBODY
    assert door.access(b"Bearer whatever") == EVERYBODY


@pytest.mark.parametrize("header", [f"Bearer {GOOD}", f"bearer {GOOD}", f"BEARER   {GOOD} "])
def test_the_token_opens_the_door_whatever_the_case_of_its_scheme(header: str) -> None:
    assert Tokens(GOOD).access(header.encode()) == EVERYBODY


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", GOOD.encode(), b"Basic " + GOOD.encode(), b"Bearer " + OTHER.encode()]
)
def test_nothing_else_does(header: bytes | None) -> None:
    assert Tokens(GOOD).access(header) is None


def test_an_api_key_counts_as_bearer_also_beside_another_authorization() -> None:
    assert Tokens(GOOD).access(None, GOOD.encode()) == EVERYBODY
    assert Tokens(GOOD).access(b"Bearer sk-of-somebody-else", GOOD.encode()) == EVERYBODY
    assert Tokens(GOOD).access(None, OTHER.encode()) is None


def test_a_token_of_the_file_is_its_caller(tmp_path: Path) -> None:
    door = Tokens(GOOD, written(tmp_path, f"ann: {OTHER}\nben:\n  - {'c' * 20}\n  - {'d' * 20}\n"))
    assert door.access(b"Bearer " + OTHER.encode()) == Access("ann")
    assert door.access(b"Bearer " + b"c" * 20) == door.access(b"Bearer " + b"d" * 20) == Access("ben")
    assert door.access(b"Bearer " + GOOD.encode()) == EVERYBODY
    assert door.access(None) is None


def test_a_changed_file_holds_and_a_broken_one_does_not(tmp_path: Path) -> None:
    now = [0.0]
    path = written(tmp_path, f"ann: {GOOD}\n")
    door = Tokens("", path, clock=lambda: now[0])
    written(tmp_path, f"ann: {OTHER}\nben: {'c' * 20}\n")
    assert door.access(b"Bearer " + GOOD.encode()) == Access("ann"), "looked at once a second only"
    now[0] += LOOK_SECONDS
    assert door.access(b"Bearer " + GOOD.encode()) is None, "revoked"
    assert door.access(b"Bearer " + OTHER.encode()) == Access("ann")
    written(tmp_path, "ann: [")
    now[0] += LOOK_SECONDS
    assert door.access(b"Bearer " + OTHER.encode()) == Access("ann")
    path.unlink()
    now[0] += LOOK_SECONDS
    assert door.access(b"Bearer " + OTHER.encode()) == Access("ann")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping"),
        ("- a\n", "must be a mapping"),
        ("ann: [", "not YAML"),
        ("ann: 12345678901234567890\n", "token of ann must be a text"),
        ("ann:\n", "token of ann must be a text"),
        (f"ann: {GOOD}\nben: {GOOD}\n", "ben has the same token"),
        ('ann: "two words of secret"\n', "without spaces"),
        (f"7: {GOOD}\n", "caller's name must be a text"),
    ],
)
def test_mistakes_are_named_and_tokens_never_shown(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Tokens("", written(tmp_path, text))
    assert GOOD not in caught.value.message
    assert "secret" not in caught.value.message


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        tokens(tmp_path / "none.yaml", {})


def test_a_token_that_no_header_may_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="visible ASCII"):
        from_environment("LUFTPAUSE_TOKEN", {"LUFTPAUSE_TOKEN": "ключ"})
    assert from_environment("LUFTPAUSE_TOKEN", {"LUFTPAUSE_TOKEN": f" {GOOD}\n"}) == GOOD
    assert from_environment("LUFTPAUSE_TOKEN", {}) == ""


def test_services_share_the_one_token_unless_agents_have_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, f"ann: {GOOD}\n")
    assert cluster_token(None, {"LUFTPAUSE_TOKEN": GOOD}) == GOOD
    assert cluster_token(path, {"LUFTPAUSE_CLUSTER_TOKEN": OTHER, "LUFTPAUSE_TOKEN": GOOD}) == OTHER
    with pytest.raises(ConfigError, match="LUFTPAUSE_CLUSTER_TOKEN"):
        cluster_token(path, {"LUFTPAUSE_TOKEN": GOOD})
    assert cluster_token(None, {}) == ""


def test_weak_tokens_and_open_files_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "ann: short\n")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        Tokens("", path)
        Tokens("", path)
    assert caplog.text.count("can be guessed") == 1
    assert "chmod 600" in caplog.text
    assert "short" not in caplog.text.replace("shorter", "")


def test_bearer() -> None:
    assert (bearer(None), bearer(b"Bearer x"), bearer(b"Token x")) == (b"", b"x", b"")


def test_what_opened_the_door_is_remembered_within_bounds_and_as_that_header_only() -> None:
    door = Tokens(GOOD)
    for spaces in range(2 * SEEN_MAX):
        assert door.access(b"Bearer " + b" " * spaces + GOOD.encode()) == EVERYBODY
    assert len(door._seen) <= SEEN_MAX
    assert door.access(None, b"Bearer " + GOOD.encode()) is None
    assert door.access(GOOD.encode()) is None


def test_the_services_token_is_nobodys_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ann has LUFTPAUSE_TOKEN as token") as caught:
        Tokens(GOOD, written(tmp_path, f"ann: {GOOD}\n"))
    assert GOOD not in caught.value.message


@pytest.mark.parametrize(
    ("authorization", "api_key", "code", "said"),
    [
        (None, None, "no_token", "a token is needed: send `Authorization: Bearer TOKEN`"),
        (b"Basic eDp5", None, "no_token", "Authorization must be `Bearer TOKEN`"),
        (b"Bearer " + OTHER.encode(), None, "unknown_token", "this token opens nothing here"),
        (None, OTHER.encode(), "unknown_token", "this token opens nothing here"),
    ],
)
def test_each_mistake_has_a_text_of_its_own(authorization: bytes | None, api_key: bytes | None, code: str, said: str) -> None:
    error = unauthorized(authorization, api_key)
    assert (error.status, error.code) == (401, code)
    assert said in error.message
    assert OTHER not in error.message


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.9", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_which_hosts_are_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_service_that_takes_everybody_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_open(Log("x"), "127.0.0.1", Tokens())
    warn_if_open(Log("x"), "0.0.0.0", Tokens())
    warn_if_open(Log("x"), "0.0.0.0", Tokens(GOOD))
    assert [record.getMessage().partition(" host=")[0] for record in caplog.records] == [
        "LUFTPAUSE_TOKEN is not set: everybody on this machine may call",
        "LUFTPAUSE_TOKEN is not set: everybody who reaches this address may call",
    ]
