"""How does a real llama.cpp server run in this process, from packages that pip can fetch?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    import socket

ALIAS: Final = "smollm2"
TEMPERATURE: Final = 0.2
TOP_P: Final = 0.9
VERBOSITY: Final = 1  # warnings and errors


def register(app: typer.Typer) -> None:
    app.command("llama-engine")(llama_engine)


def llama_engine(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8300,
    slots: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 4,
    context: Annotated[int, typer.Option(min=256, help="Tokens of context, shared out among the slots.")] = 8192,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; not given: half the number of cores.")] = None,
    prompt_cache_mib: Annotated[
        int | None, typer.Option(min=0, help="RAM for prompts that lost their slot; 0: none; not given: llama.cpp's 8192.")
    ] = None,
    model_file: Annotated[Path | None, typer.Option(help="Weights (.gguf); not given: SmolLM2-135M, fetched if need be.")] = None,
    model: Annotated[str | None, typer.Option(help=f"Name of the model; not given: {ALIAS}, or the file's name.")] = None,
    announce: Annotated[Path | None, typer.Option(hidden=True, help="Write where it listens to this file, as JSON.")] = None,
) -> None:
    """Run a real engine: the llama.cpp server with SmolLM2-135M-Instruct (extra `local`)."""
    import os

    from luftpause.cli.weights import smollm2
    from luftpause.kit.errors import LuftpauseError
    from luftpause.kit.serve import announce as announce_at

    server_type, params_type = _llamacpp()
    if model_file is not None and not model_file.is_file():
        raise LuftpauseError(f"--model-file {model_file} does not exist", code="bad_argument")
    weights = model_file or smollm2()
    name = model or (ALIAS if model_file is None else model_file.stem)
    params = params_type()
    _configure(
        params, host=host, port=_free(host, port), slots=slots, context=context, threads=threads or max(1, (os.cpu_count() or 2) // 2)
    )
    if prompt_cache_mib is not None:
        params.cache_ram_mib = prompt_cache_mib
    params.model.path = str(weights)
    params.model_alias = {name}
    stop = _stop_asked()
    try:
        server = server_type(params)
    except RuntimeError as error:
        raise LuftpauseError(f"llama.cpp does not start with {weights}: {error}", code="engine_failed") from error
    announce_at(announce, {"http": server.listening_address})
    stop.recv(1)
    # The server's destructor would wait, holding the interpreter's lock, until the last answer is finished; nothing has to be saved.
    os._exit(0)


def _llamacpp() -> tuple[Any, Any]:
    from luftpause.kit.errors import LuftpauseError

    try:
        import xllamacpp
    except ImportError:
        raise LuftpauseError("llama-engine needs llama.cpp; run: pip install 'luftpause[local]'", code="missing_extra") from None
    library: Any = xllamacpp
    return library.Server, library.CommonParams


def _free(host: str, port: int) -> int:
    """The port, if it can be had: llama.cpp's own message for a taken one names neither port nor option."""
    from luftpause.kit.serve import listen

    if port:
        listen(host, port, option="--port").close()
    return port


def _configure(params: Any, *, host: str, port: int, slots: int, context: int, threads: int) -> None:
    from importlib.resources import files

    params.hostnames = [host]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.use_jinja = True
    # The model's own template ignores tools: without ours it would never hear of them.
    params.chat_template = files("luftpause.cli").joinpath("chatml_tools.jinja").read_text()
    # Threads that spin while they wait slow everything down where other services share the cores.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # What the model's authors recommend; requests may ask otherwise.
    params.sampling.temp, params.sampling.top_p = TEMPERATURE, TOP_P
    params.warmup = False
    params.verbosity = VERBOSITY


def _stop_asked() -> "socket.socket":
    """Readable once SIGTERM or SIGINT came, whichever thread got it; before the server is there, too."""
    import signal
    import socket

    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach())
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _nothing)
    return reader


def _nothing(_number: int, _frame: object) -> None:
    """The byte that the interpreter writes for the signal is all that is needed."""
