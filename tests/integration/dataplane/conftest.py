"""On which event loop do these tests run? On uvloop, as the dataplane does: its transports differ from asyncio's."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test as a plain function that runs it on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> object:
    if isinstance(collector, pytest.Module) and name.startswith("test_") and inspect.iscoroutinefunction(obj):
        plain = on_uvloop(obj)
        setattr(collector.obj, name, plain)  # pytest takes the function from the module again
        return collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=plain)
    return None
