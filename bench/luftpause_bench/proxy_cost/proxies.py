"""Which proxies are compared, and how is each started?

luftpause, nginx, and what is found of the LLM routers: programs named by LUFTPAUSE_BENCH_SGLANG_ROUTER, _VLLM_ROUTER and _LITELLM, or on
the PATH. A router that isn't there is left out, and the table says so.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

MODEL = "fake"
LUFTPAUSE = (sys.executable, "-m", "luftpause")


class Command(Struct, frozen=True):
    """A process of a variant; `counted`: its CPU time is the proxy's."""

    words: tuple[str, ...]
    counted: bool = True
    environ: dict[str, str] = {}


class Variant(Struct, frozen=True):
    """`commands(folder, port, engine port)`. `streams_max`: beyond it the comparison would take for ever."""

    name: str
    commands: Callable[[Path, int, int], list[Command]]
    streams_max: int = 1_000
    ready: str = "/v1/models"


def variants() -> tuple[list[Variant], list[str]]:
    """Those that can be started here, and what is missing."""
    found = [Variant("luftpause", _in_process), Variant("luftpause apart", _apart)]
    missing: list[str] = []
    optional: list[tuple[str, str, Callable[[str], Variant]]] = [
        ("nginx", "LUFTPAUSE_BENCH_NGINX", _nginx),
        ("sglang-router", "LUFTPAUSE_BENCH_SGLANG_ROUTER", _sglang),
        ("vllm-router", "LUFTPAUSE_BENCH_VLLM_ROUTER", _vllm),
        ("litellm", "LUFTPAUSE_BENCH_LITELLM", _litellm),
    ]
    for name, variable, make in optional:
        program = os.environ.get(variable) or shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if program:
            found.append(make(program))
        else:
            missing.append(f"{name} (not on the PATH; {variable} may name it)")
    return found, missing


# ---- luftpause ----------------------------------------------------------------------------------------------------

_CONFIG = """\
replicas:
  - {{name: engine, url: "http://127.0.0.1:{engine}", models: [{model}], load: none, health: null, apis: [chat]}}
scheduler: {{grpc_port: {grpc}, http_port: {http}, start_grace_seconds: 0}}
dataplane: {{port: {port}, scheduler: "127.0.0.1:{grpc}"}}
log: {{level: error}}
"""


def _config(folder: Path, port: int, engine: int) -> Path:
    path = folder / f"luftpause-{port}.yaml"
    path.write_text(_CONFIG.format(engine=engine, model=MODEL, port=port, grpc=port + 1, http=port + 2))
    return path


def _in_process(folder: Path, port: int, engine: int) -> list[Command]:
    return [Command((*LUFTPAUSE, "dataplane", "--with-scheduler", "--config", str(_config(folder, port, engine))))]


def _apart(folder: Path, port: int, engine: int) -> list[Command]:
    config = str(_config(folder, port, engine))
    return [
        Command((*LUFTPAUSE, "scheduler", "--config", config)),
        Command((*LUFTPAUSE, "dataplane", "--config", config)),
    ]


# ---- the others ---------------------------------------------------------------------------------------------------

_NGINX = """\
worker_processes 1;
daemon off;
pid {folder}/nginx-{port}.pid;
error_log {folder}/nginx-{port}.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 512k;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  keepalive_requests 1000000;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 2048; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def _nginx(program: str) -> Variant:
    def commands(folder: Path, port: int, engine: int) -> list[Command]:
        path = folder / f"nginx-{port}.conf"
        path.write_text(_NGINX.format(folder=folder, port=port, engine=engine))
        return [Command((program, "-c", str(path), "-e", str(folder / f"nginx-{port}.log")))]

    return Variant("nginx", commands)


def _sglang(program: str) -> Variant:
    def commands(folder: Path, port: int, engine: int) -> list[Command]:
        del folder
        options = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1), "--log-level", "error")
        return [Command((program, "launch", "--worker-urls", f"http://127.0.0.1:{engine}", "--policy", "cache_aware", *options))]

    return Variant("sglang-router", commands)


def _vllm(program: str) -> Variant:
    def commands(folder: Path, port: int, engine: int) -> list[Command]:
        del folder
        options = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1), "--log-level", "error")
        return [Command((program, "--worker-urls", f"http://127.0.0.1:{engine}", "--policy", "round_robin", *options))]

    return Variant("vllm-router", commands)


_LITELLM = """\
model_list:
  - model_name: {model}
    litellm_params: {{model: "openai/{model}", api_base: "http://127.0.0.1:{engine}/v1", api_key: none}}
litellm_settings: {{telemetry: false, set_verbose: false}}
"""


# Without byte code it would compile its modules again and again; without a key it starts only if told to.
_LITELLM_ENVIRON = {
    "LITELLM_LOG": "ERROR", "PYTHONDONTWRITEBYTECODE": "", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}  # fmt: skip


def _litellm(program: str) -> Variant:
    def commands(folder: Path, port: int, engine: int) -> list[Command]:
        path = folder / f"litellm-{port}.yaml"
        path.write_text(_LITELLM.format(model=MODEL, engine=engine))
        words = (program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")
        return [Command(words, environ=_LITELLM_ENVIRON)]

    return Variant("litellm", commands, streams_max=32, ready="/health/liveliness")
