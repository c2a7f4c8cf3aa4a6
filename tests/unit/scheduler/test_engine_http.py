"""Is a refused connection told from one that failed otherwise, however deep its cause lies?"""

import httpx
import pytest

from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.engine_http import _failure


def caused(error: Exception, cause: BaseException) -> Exception:
    """`raise error from cause`, as a library would."""
    try:
        raise error from cause
    except type(error) as raised:
        return raised


REFUSED = ConnectionRefusedError(111, "refused")
UNREACHABLE = OSError(113, "no route to host")


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [
        (REFUSED, ProbeOutcome.REFUSED),
        (caused(OSError("All connection attempts failed"), REFUSED), ProbeOutcome.REFUSED),
        (caused(OSError("All connection attempts failed"), ExceptionGroup("several", [REFUSED, REFUSED])), ProbeOutcome.REFUSED),
        (caused(OSError("All connection attempts failed"), ExceptionGroup("several", [REFUSED, UNREACHABLE])), ProbeOutcome.MISSED),
        (UNREACHABLE, ProbeOutcome.MISSED),
        (ConnectionResetError(104, "reset"), ProbeOutcome.MISSED),
    ],
)
def test_only_where_every_address_refuses_is_the_connection_refused(cause: BaseException, outcome: ProbeOutcome):
    assert _failure(caused(httpx.ConnectError("failed"), cause), 2).outcome is outcome


def test_a_timeout_says_how_long_was_waited():
    answer = _failure(httpx.ReadTimeout(""), 2)
    assert (answer.outcome, answer.problem) == (ProbeOutcome.MISSED, "no answer within 2 s")


def test_an_error_without_text_is_named_by_its_type():
    assert _failure(httpx.RemoteProtocolError(""), 2).problem == "RemoteProtocolError"
