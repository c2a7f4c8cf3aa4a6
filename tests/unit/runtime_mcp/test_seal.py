"""Is the key of request states the same over restarts, and nobody else's?"""

import stat
from pathlib import Path

import pytest

from luftpause.kit.errors import ConfigError
from luftpause.runtime.seal import FILE, request_state_key


def test_the_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path):
    key = request_state_key(tmp_path / "state")
    assert len(key) == 32
    assert request_state_key(tmp_path / "state") == key
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600
    assert request_state_key(tmp_path / "other") != key


def test_a_key_that_others_could_read_is_closed_to_them(tmp_path: Path):
    key = request_state_key(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    assert request_state_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_what_a_crash_left_half_made_is_made_anew(tmp_path: Path):
    (tmp_path / FILE).with_suffix(".new").write_bytes(b"half")
    assert len(request_state_key(tmp_path)) == 32


def test_a_key_that_is_too_short_is_named_with_its_mend(tmp_path: Path):
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"request_state.key holds 5 bytes, not 32: delete it"):
        request_state_key(tmp_path)


def test_a_state_directory_that_can_not_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"runtime.state: .*request_state.key can't be used"):
        request_state_key(tmp_path / "file")
