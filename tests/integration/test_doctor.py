"""Does the doctor find and name what goes wrong in practice, and nothing where all is well?"""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from luftpause import __version__
from luftpause.cli.doctor_all import examine
from luftpause.cli.doctor_findings import Finding
from luftpause.cli.doctor_unreached import why
from tests.support.certificates import certificates
from tests.support.ports import a_quiet_port, a_refusing_port

METRICS = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\n"


class Pages:
    """A server whose answers are these: a status and a body by path; every other path is a 404. `key`: wants it as bearer."""

    def __init__(self, pages: dict[str, Any], *, key: str = "", date: datetime | None = None) -> None:
        self.pages, self._key, self._date = pages, key, date
        self.port = 0
        self.missing: tuple[int, Any] = (404, {"error": "no such page"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status, body = self._answer(head)
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            date = f"date: {format_datetime(self._date, usegmt=True)}\r\n" if self._date else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{date}content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _answer(self, head: str) -> tuple[int, Any]:
        path = head.split()[1]
        if self._key and f"authorization: bearer {self._key}" not in head and path != "/health":
            return 401, {"error": "no"}
        return (200, self.pages[path]) if path in self.pages else self.missing


@contextlib.asynccontextmanager
async def serving(pages: Pages, *, host: str = "127.0.0.1") -> AsyncGenerator[Pages]:
    server = await asyncio.start_server(pages.serve, host, 0)
    pages.port = server.sockets[0].getsockname()[1]
    try:
        yield pages
    finally:
        server.close()
        await server.wait_closed()


def engine(models: tuple[str, ...] = ("m",), *, metrics: bool = True, **more: Any) -> Pages:
    pages: dict[str, Any] = {"/health": "", "/v1/models": {"object": "list", "data": [{"id": name} for name in models]}}
    return Pages(pages | ({"/metrics": METRICS} if metrics else {}), **more)


class Place:
    """A configuration in a folder, with ports that nobody uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {
            "scheduler": {"http_port": a_quiet_port(), "grpc_port": a_quiet_port()},
            "dataplane": {"port": a_quiet_port()},
            "runtime": {"port": a_quiet_port(), "state": str(folder / "state")},
        }

    def file(self) -> Path:
        path = self.folder / "luftpause.yaml"
        path.write_text(yaml.safe_dump(self.config))
        return path

    async def faults(self) -> list[Finding]:
        return [finding for finding in await examine(self.file()) if finding.level == "fault"]

    def replica(self, url: str, **more: Any) -> None:
        self.config["replicas"] = [{"name": "a", "url": url, **more}]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in os.environ:
        if name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("luftpause.cli.doctor_unreached.CONTAINER_MARKS", ())  # wherever tests run
    return Place(tmp_path)


def one(found: list[Finding], *words: str) -> None:
    """There is this fault alone; what it says, and how to mend it, has these words."""
    assert len(found) == 1, found
    text = f"{found[0].what}: {found[0].found} -> {found[0].mend}"
    assert found[0].mend, text
    for word in words:
        assert word in text


# ---- replicas ---------------------------------------------------------------------------------------------------


async def test_nothing_is_wrong_with_an_engine_that_is_there(place: Place) -> None:
    async with serving(engine()) as there:
        place.replica(there.url, load="sglang", models=["m"])
        assert await place.faults() == []


async def test_dead_engine(place: Place) -> None:
    place.replica(f"http://127.0.0.1:{a_refusing_port()}")
    one(await place.faults(), "replica a", "nothing listens there", "start the engine")


async def test_wrong_port_where_something_else_answers(place: Place) -> None:
    async with serving(Pages({"/health": "fine"})) as other:
        place.replica(other.url, load="none")
        one(await place.faults(), "replica a", "no list of models", "port of an engine")


async def test_wrong_port_where_no_http_is_spoken(place: Place) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        place.replica(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        one(await place.faults(), "replica a", "no HTTP answer", "correct its url", "write https://")


async def test_engine_that_listens_on_the_other_address_of_this_machine(place: Place) -> None:
    async with serving(engine(), host="::1") as there:
        place.replica(f"http://127.0.0.1:{there.port}")
        one(await place.faults(), "something does at [::1]", f"write http://[::1]:{there.port} in its url")


async def test_address_of_a_container_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luftpause.cli.doctor_unreached.CONTAINER_MARKS", (place.folder,))
    place.replica(f"http://127.0.0.1:{a_refusing_port()}")
    one(await place.faults(), "is this container itself", "host.docker.internal")


async def test_in_the_container_of_one_service_the_others_are_not_missed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.config["runtime"]["state"] = "/proc/state"
    one(await place.faults(), "/proc can't be written to", "runtime.state")
    monkeypatch.setattr("luftpause.cli.doctor_unreached.CONTAINER_MARKS", (place.folder,))
    found = await examine(place.file())
    assert [each for each in found if each.level == "fault"] == []
    assert sum("docker compose ps" in each.mend for each in found) == 3
    assert not any("luftpause up" in each.mend for each in found)


async def test_name_that_is_not_known(place: Place) -> None:
    place.replica("http://no-such-engine.invalid:8000")
    one(await place.faults(), "the name no-such-engine.invalid is not known here", "correct the host")


async def test_tls_that_is_not_spoken(place: Place) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # of a greeting that is no HTTP
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        place.replica(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        one(await place.faults(), "it does not speak TLS", "write http://")


async def test_certificate_that_nobody_trusts(place: Place, tmp_path: Path) -> None:
    with shaking_hands_once(tmp_path) as port:
        place.replica(f"https://127.0.0.1:{port}")
        one(await place.faults(), "its certificate is not trusted: unable to get local issuer certificate", "SSL_CERT_FILE")


@contextlib.contextmanager
def shaking_hands_once(folder: Path) -> Generator[int]:
    """The port of a TLS server that takes one connection, in a thread: asyncio's would lose sight of a handshake that fails."""
    files = certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)

    def serve() -> None:
        peer, _ = listening.accept()
        with peer, contextlib.suppress(OSError):
            context.wrap_socket(peer, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    "says",
    [
        "Client sent an HTTP request to an HTTPS server.",
        "<title>400 The plain HTTP request was sent to HTTPS port</title>",
        "Reason: You're speaking plain HTTP to an SSL-enabled server port.",
        "Bad Request\nThis combination of host and port requires TLS.",
    ],
)
async def test_server_that_says_that_it_wants_tls(says: str, place: Place) -> None:
    async with serving(Pages({})) as there:
        there.missing = (400, says)
        place.replica(there.url)
        one(await place.faults(), "it speaks TLS", "write https://")


async def test_an_address_in_an_error_is_no_sign_of_tls(place: Place) -> None:
    async with serving(Pages({})) as there:
        there.missing = (400, '{"error": "unknown path, see https://docs.example/ssl"}')
        place.replica(there.url)
        assert not any("TLS" in each.what or "TLS" in str(each) for each in await place.faults())


@pytest.mark.parametrize(
    ("message", "mend"),
    [
        ("Hostname mismatch, certificate is not valid for 'e'.", "write the name that stands in it instead of e"),
        ("certificate has expired", "renew it"),
        ("self-signed certificate", "in SSL_CERT_FILE"),
    ],
)
def test_certificates_that_are_not_trusted(message: str, mend: str) -> None:
    cause = ssl.SSLCertVerificationError()
    cause.verify_message = message
    found = why(no_connection(cause), "https://e:1/health")
    assert found[0] == f"its certificate is not trusted: {message}"
    assert mend in found[1]


def test_machine_that_no_way_leads_to() -> None:
    found = why(no_connection(OSError(errno.EHOSTUNREACH, "No route to host")), "http://10.1.1.1:1/health")
    assert found[0] == "no way leads there (No route to host)"


def no_connection(cause: Exception) -> httpx.ConnectError:
    error = httpx.ConnectError("no")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (None, "", ("wants a key", "api_key_env")),
        ("ENGINE_KEY", "", ("ENGINE_KEY is not set, or empty", "export ENGINE_KEY")),
        ("ENGINE_KEY", "bad", ("refuses the key in ENGINE_KEY",)),
    ],
)
async def test_wrong_key(place: Place, monkeypatch: pytest.MonkeyPatch, variable: str | None, value: str, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("ENGINE_KEY", value)
    async with serving(engine(key="good")) as there:
        place.replica(there.url, load="none", api_key_env=variable)
        found = await place.faults()
        one(found, "replica a", *words)
        assert "bad" not in str(found)


async def test_right_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "good")
    async with serving(engine(key="good")) as there:
        place.replica(there.url, load="sglang", api_key_env="ENGINE_KEY")
        assert await place.faults() == []


async def test_unknown_model(place: Place) -> None:
    async with serving(engine(("llama-3.2-1b",))) as there:
        for name in ("llama-3.2-1B", "LLAMA-3.2"):
            place.replica(there.url, models=[name])
            one(await place.faults(), f"does not serve {name}", "did you mean llama-3.2-1b?")


async def test_unknown_default_model(place: Place) -> None:
    async with serving(engine(("llama",))) as there:
        place.replica(there.url)
        place.config["runtime"]["default_model"] = "lama"
        one(await place.faults(), "runtime.default_model", "did you mean llama?")


@pytest.mark.parametrize(("load", "hint"), [("sglang", "--enable-metrics"), ("llamacpp", "--metrics"), ("auto", "load: none")])
async def test_metrics_off(place: Place, load: str, hint: str) -> None:
    async with serving(engine(metrics=False)) as there:
        place.replica(there.url, load=load)
        one(await place.faults(), "load can't be read", hint)


async def test_clock_skew(place: Place) -> None:
    async with serving(engine(date=datetime.now(UTC) + timedelta(seconds=90))) as there:
        place.replica(there.url)
        one(await place.faults(), "s ahead of this machine's", "time server")


# ---- this machine -----------------------------------------------------------------------------------------------


async def test_bad_yaml(place: Place) -> None:
    path = place.folder / "luftpause.yaml"
    path.write_text("replicas:\n  - name: a\n    urll: http://e\n")
    found = await examine(path)
    assert {finding.level for finding in found} == {"fault"}
    assert any("did you mean url?" in finding.found and ":3" in finding.found for finding in found)


async def test_a_file_that_nobody_named_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    place.file()
    (found,) = [each for each in await examine(None) if "not looked at" in each.found]
    assert (found.level, "luftpause doctor --config luftpause.yaml" in found.mend) == ("note", True)


async def test_proxy_variable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example")
    one(await place.faults(), "HTTP_PROXY is set", "127.0.0.1", "export NO_PROXY=127.0.0.1,example,localhost")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert await place.faults() == []


async def test_full_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(place.folder)._replace(free=10_000_000)

    def nearly_full(_: Path) -> Any:
        return usage

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    one(await place.faults(), "state directory", "10 MiB are free", "runtime.state")


@contextlib.contextmanager
def locked(folder: Path, pid: int) -> Generator[None]:
    """As a runtime with this pid would have it."""
    folder.mkdir()
    with (folder / "runs.lock").open("w") as file:
        file.write(f"{pid}\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_stale_lock(place: Place) -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    with locked(place.folder / "state", gone.pid):
        one(await place.faults(), "still locked", f"pid {gone.pid}", "fuser")


async def test_a_lock_that_nobody_holds_is_no_fault(place: Place) -> None:
    with locked(place.folder / "state", 1):
        pass
    assert await place.faults() == []


# ---- services ---------------------------------------------------------------------------------------------------


def health(service: str, version: str = __version__, ready: Any = None) -> Pages:
    return Pages({"/health": {"status": "ok", "service": service, "version": version}, "/ready": ready or {}})


async def test_port_in_use(place: Place) -> None:
    async with serving(Pages({})) as other:
        place.config["dataplane"]["port"] = other.port
        one(await place.faults(), "dataplane", f"port {other.port} is taken", "dataplane.port")


async def test_port_that_another_service_of_ours_has(place: Place) -> None:
    async with serving(health("runtime")) as there:
        place.config["dataplane"]["port"] = there.port
        one(await place.faults(), "dataplane", "taken by luftpause's runtime", "dataplane.port")


async def test_version_mismatch(place: Place) -> None:
    async with serving(health("runtime", "0.0.9")) as there:
        place.config["runtime"]["port"] = there.port
        one(await place.faults(), "runtime", "version 0.0.9", __version__, "update both")


async def test_dataplane_without_scheduler(place: Place) -> None:
    ready = {"ready": True, "scheduler": {"connected": False, "contacted": True}}
    async with serving(health("dataplane", ready=ready)) as there:
        place.config["dataplane"]["port"] = there.port
        one(await place.faults(), "not connected to the scheduler", "dataplane.scheduler")


async def test_without_a_configuration_the_replicas_of_the_scheduler_that_runs_are_told(place: Place) -> None:
    """As a newcomer asks beside `luftpause up`, whose engines stand in no file."""
    assert any("no turn can go anywhere" in finding.found for finding in await examine(place.file()))
    replicas = [{"name": "engine-a", "health": "healthy"}, {"name": "engine-b", "health": "unhealthy"}]
    pages = Pages({"/health": {"status": "ok", "service": "scheduler", "version": __version__}})
    for told in (replicas, []):
        pages.pages["/status"] = {"sessions": ["dp"], "state": {"replicas": told}}
        async with serving(pages) as there:
            place.config["scheduler"]["http_port"] = there.port
            found = {finding.what: finding for finding in await examine(place.file())}
        assert ("replicas" in found) is not bool(told)
        assert {name for name in found if name.startswith("replica ")} == {f"replica {each['name']}" for each in told}
        if told:
            assert (found["replica engine-a"].level, found["replica engine-b"].level) == ("ok", "fault")


async def test_tool_server_that_is_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luftpause.cli.doctor_services.TOOLS_SECONDS_MAX", 0.5)
    place.config["runtime"]["servers"] = {"wiki": {"url": f"http://127.0.0.1:{a_refusing_port()}/mcp"}}
    one(await place.faults(), "tool server wiki", "runtime.servers.wiki")


async def test_two_runtimes(place: Place) -> None:
    """The second one of a state directory ends by itself; the doctor that is asked about it names the first."""
    place.config["runtime"]["port"] = 0
    announced = place.folder / "at.json"
    command = [sys.executable, "-m", "luftpause", "runtime", "--config", str(place.file()), "--announce", str(announced)]
    first = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(60):
            while not announced.exists():
                await asyncio.sleep(0.05)  # polling: another process does it
        place.config["runtime"]["port"] = a_quiet_port()
        found = await examine(place.file())
        assert any(f"pid {first.pid}" in finding.found and "runtime.state" in finding.mend for finding in found if finding.level == "fault")
    finally:
        first.terminate()
        async with asyncio.timeout(30):
            await first.wait()


# ---- the command ------------------------------------------------------------------------------------------------


def test_its_exit_status_and_json(place: Place) -> None:
    place.replica(f"http://127.0.0.1:{a_refusing_port()}")
    command = [sys.executable, "-m", "luftpause", "doctor", "--config", str(place.file())]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LUFTPAUSE_TOKEN")}
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert told.returncode == 1
    found = json.loads(told.stdout)
    assert found["ok"] is False
    assert [each["what"] for each in found["findings"] if each["level"] == "fault"] == ["replica a"]
    del place.config["replicas"]
    place.file()
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (shown.returncode, shown.stdout.splitlines()[-1][:16]) == (0, "nothing is wrong")
