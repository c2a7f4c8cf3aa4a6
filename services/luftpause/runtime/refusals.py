"""In which words does the runtime refuse what a client asks?"""

from luftpause.kit.errors import LuftpauseError


def bad_argument(name: str, why: str) -> LuftpauseError:
    """`why` also says what is allowed."""
    return LuftpauseError(f"{name}: {why}", code="bad_argument", status=400)


def stopping() -> LuftpauseError:
    return LuftpauseError("the runtime is stopping; its runs go on when it starts again", code="stopping", status=503)


def too_many_runs(unfinished: int) -> LuftpauseError:
    return LuftpauseError(
        f"{unfinished} runs are unfinished, the most that runtime.runs_max allows; await some, then spawn again",
        code="too_many_runs",
        status=429,
        retry_after_s=1,
    )


def unknown_handle(handle: str, here: str) -> LuftpauseError:
    """`here` is this runtime's name, which its handles start with; "": it has none."""
    name, dot, _ = handle.rpartition(".")
    if dot and name != here:
        this = f"this one is {here!r}" if here else "this one has no name"
        return LuftpauseError(f"handle {handle!r} belongs to the runtime {name!r}; {this}", code="unknown_handle", status=404)
    return LuftpauseError(
        f"unknown handle {handle!r}: it was never given out, belongs to another session, or its result is older than the retention",
        code="unknown_handle",
        status=404,
    )
