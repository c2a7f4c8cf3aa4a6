"""Does a turn reach an engine over TLS, and only one whose certificate is good?"""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from luftpause.dataplane import upstream
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import STREAM_BODY, client_of, post, running_plane
from tests.support.raw_engine import Talk, raw_engine

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'


def certificate(folder: Path) -> ssl.SSLContext:
    """A server context with a certificate of its own for 127.0.0.1, written to `folder`/cert.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509
        .CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(cert.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def streams(talk: Talk) -> None:
    await talk.stream(TEXT, b"data: [DONE]\n\n")


async def test_an_engine_over_tls_is_served_on_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    monkeypatch.setattr(upstream, "_tls", lambda: trusting)
    async with raw_engine(streams, tls=context) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, api_key="k"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(3):
                answer = await client.ask(post(STREAM_BODY))
                assert (answer.status, answer.body) == (200, TEXT + b"data: [DONE]\n\n")
    assert engine.connections == 1
    assert engine.talks[0].header("authorization") == "Bearer k"


async def test_an_unknown_certificate_is_refused_before_the_key_is_sent(tmp_path: Path) -> None:
    async with raw_engine(streams, tls=certificate(tmp_path)) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, api_key="k"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert answer.status == 502
    assert answer.error["message"].startswith("engine a: TLS failed")
    assert not engine.talks
