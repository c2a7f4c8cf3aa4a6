"""How do scheduler and dataplanes know that it is them, and who can listen to what they say?"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc

from luftpause.kit.auth import CLUSTER_TOKEN, TOKEN, cluster_token, is_loopback
from luftpause.kit.config import AuthConfig
from luftpause.kit.errors import ConfigError

AUTHORIZATION: Final = "authorization"
TO_MEND: Final = f"give both the same {CLUSTER_TOKEN} (or {TOKEN}, where no tokens_file is used)"

Metadata = tuple[tuple[str, str], ...]


def metadata(auth: AuthConfig, environ: Mapping[str, str] | None = None) -> Metadata:
    """What a dataplane shows the scheduler. Raises ConfigError."""
    token = cluster_token(auth.tokens_file, environ)
    return ((AUTHORIZATION, f"Bearer {token}"),) if token else ()


def server_credentials(auth: AuthConfig, host: str) -> grpc.ServerCredentials | None:
    """For the scheduler that listens on `host`; None: no TLS. Raises ConfigError where anybody could listen in."""
    if auth.tls_cert is not None and auth.tls_key is not None:
        key, certificate = _pem(auth.tls_key, "tls_key"), _pem(auth.tls_cert, "tls_cert")
        _check_pair(auth.tls_cert, auth.tls_key)
        return grpc.ssl_server_credentials([(key, certificate)])
    if not (auth.insecure or is_loopback(host)):
        raise ConfigError(
            f"scheduler.host {host} can be reached from other machines, and its gRPC has no TLS: set auth.tls_cert and auth.tls_key, "
            "or auth.insecure: true where the network is trusted"
        )
    return None


def channel_credentials(auth: AuthConfig, address: str) -> grpc.ChannelCredentials | None:
    """For a dataplane whose scheduler is at host:port; None: no TLS. Raises ConfigError where anybody could listen in."""
    if auth.tls_ca is not None:
        trusted = _pem(auth.tls_ca, "tls_ca")
        _check_trusted(auth.tls_ca)
        return grpc.ssl_channel_credentials(trusted)
    if auth.tls_cert is not None:
        raise ConfigError("auth.tls_cert is set, so the scheduler speaks TLS: set auth.tls_ca, the certificates that dataplanes trust")
    if not (auth.insecure or is_loopback(address.rpartition(":")[0])):
        raise ConfigError(
            f"dataplane.scheduler {address} is another machine, and the way there has no TLS: set auth.tls_ca, "
            "or auth.insecure: true where the network is trusted"
        )
    return None


def _pem(path: Path, key: str) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"auth.{key} {path}: can't be read: {error.strerror or error}") from error
    if b"-----BEGIN " not in text:
        raise ConfigError(f"auth.{key} {path}: is not PEM; it must hold a line that begins with -----BEGIN")
    return text


def _check_pair(certificate: Path, key: Path) -> None:
    """gRPC would only say that it can't listen."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error
        raise ConfigError(f"auth.tls_cert {certificate} and auth.tls_key {key} can't be used together: {why}") from None


def _check_trusted(path: Path) -> None:
    """gRPC would trust nobody, and only say so when it connects."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"auth.tls_ca {path}: holds no certificate: {error.reason}") from None


def _no_password() -> str:
    raise ValueError("the key has a password; store it without one")
