"""How safe is the way between scheduler and dataplanes?"""

from pathlib import Path

import pytest

from luftpause.kit.config import AuthConfig
from luftpause.kit.control import channel_credentials, metadata, server_credentials
from luftpause.kit.errors import ConfigError
from tests.support.certificates import certificates

TOKEN = "t" * 32


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_on_loopback_no_tls_is_needed(host: str) -> None:
    assert server_credentials(AuthConfig(), host) is None
    assert channel_credentials(AuthConfig(), f"[{host}]:5000" if ":" in host else f"{host}:5000") is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "scheduler"])
def test_elsewhere_it_is_unless_the_network_is_said_to_be_trusted(host: str) -> None:
    with pytest.raises(ConfigError, match=r"auth\.tls_cert and auth\.tls_key.*auth\.insecure: true"):
        server_credentials(AuthConfig(), host)
    address = f"[{host}]:5000" if ":" in host else f"{host}:5000"
    with pytest.raises(ConfigError, match=r"auth\.tls_ca.*auth\.insecure: true"):
        channel_credentials(AuthConfig(), address)
    assert server_credentials(AuthConfig(insecure=True), host) is None
    assert channel_credentials(AuthConfig(insecure=True), address) is None


def test_certificates_make_tls_anywhere(tmp_path: Path) -> None:
    own = certificates(tmp_path)
    auth = AuthConfig(tls_cert=own.cert, tls_key=own.key, tls_ca=own.ca)
    for host in ("127.0.0.1", "0.0.0.0"):
        assert server_credentials(auth, host) is not None
        assert channel_credentials(auth, f"{host}:5000") is not None


def test_a_dataplane_with_the_schedulers_certificate_must_know_whom_to_trust(tmp_path: Path) -> None:
    own = certificates(tmp_path)
    with pytest.raises(ConfigError, match=r"set auth\.tls_ca"):
        channel_credentials(AuthConfig(tls_cert=own.cert, tls_key=own.key), "127.0.0.1:5000")


def test_files_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    for auth, said in (
        (AuthConfig(tls_cert=own.cert, tls_key=tmp_path / "none.pem"), "auth.tls_key .*none.pem: can't be read"),
        (AuthConfig(tls_cert=text, tls_key=own.key), "auth.tls_cert .*text.pem: is not PEM"),
        (AuthConfig(tls_cert=own.cert, tls_key=other.key), "can't be used together: KEY_VALUES_MISMATCH"),
        (AuthConfig(tls_cert=broken, tls_key=own.key), "can't be used together"),
    ):
        with pytest.raises(ConfigError, match=said):
            server_credentials(auth, "127.0.0.1")
    for ca, said in ((text, "auth.tls_ca .*text.pem: is not PEM"), (broken, "auth.tls_ca .*broken.pem: holds no certificate")):
        with pytest.raises(ConfigError, match=said):
            channel_credentials(AuthConfig(tls_ca=ca), "127.0.0.1:5000")


def test_what_a_dataplane_shows_the_scheduler(tmp_path: Path) -> None:
    assert metadata(AuthConfig(), {}) == ()
    assert metadata(AuthConfig(), {"LUFTPAUSE_TOKEN": TOKEN}) == (("authorization", f"Bearer {TOKEN}"),)
    file = AuthConfig(tokens_file=tmp_path / "tokens.yaml")
    with pytest.raises(ConfigError, match="LUFTPAUSE_CLUSTER_TOKEN"):
        metadata(file, {"LUFTPAUSE_TOKEN": TOKEN})
    assert metadata(file, {"LUFTPAUSE_TOKEN": "x" * 32, "LUFTPAUSE_CLUSTER_TOKEN": TOKEN}) == (("authorization", f"Bearer {TOKEN}"),)
