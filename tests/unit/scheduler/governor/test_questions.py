"""Is each figure and name of a question about quotas that no dataplane of ours would ask found, and no other one?"""

from math import inf, nan
from typing import Any

import pytest

from luftpause.kit import quota_wire
from luftpause.kit.wire.v1 import governor_pb2 as pb
from luftpause.scheduler.governor.questions import mistake


def reserve(**other: Any) -> pb.QuotaQuestion:
    asked: dict[str, Any] = {
        "target": "api", "want": "call:0::a", "caller": "x", "priority": 1, "cost": {"requests": 1.0}, "lease_seconds": None,
        "wait_seconds": 60.0, "retry": False,
    }  # fmt: skip
    return quota_wire.reserve(**(asked | other))


def report(**other: Any) -> pb.QuotaQuestion:
    told: dict[str, Any] = {"want": "a", "fence": 7, "status": 200, "headers": {}, "actual": {"tokens": 0.0}}
    told |= other
    answer = pb.QuotaAnswer(target="api", status=told["status"] or 0, headers=told["headers"])
    return quota_wire.report(pb.QuotaLease(target="api", want=told["want"], fence=told["fence"]), answer, told["actual"])


RIGHT = [
    reserve(),
    reserve(lease_seconds=3_600.0, wait_seconds=30 * 86_400.0),
    reserve(lease_seconds=0.001, wait_seconds=0.0, cost=None),
    reserve(cost={str(number): 1e15 for number in range(64)}, want="w" * 1_024),
    report(),
    report(status=None, fence=2**63 - 1, headers={str(number): "x" * 4_096 for number in range(128)}),
    pb.QuotaQuestion(renew=pb.QuotaLease(target="api", want="a", fence=1)),
    pb.QuotaQuestion(view=pb.QuotaView()),
    pb.QuotaQuestion(enable=pb.QuotaEnable(target="api")),
]


@pytest.mark.parametrize("question", RIGHT)
def test_what_may_be_asked(question: pb.QuotaQuestion) -> None:
    assert mistake(question) == ""


LEASE = pb.QuotaLease(target="api", want="a", fence=2**63)
WRONG = [
    (reserve(lease_seconds=3_600.1), "`lease_seconds` is 3600.1;"),
    (reserve(lease_seconds=-1.0), "`lease_seconds` is -1;"),
    (reserve(lease_seconds=nan), "`lease_seconds` is nan;"),
    (reserve(lease_seconds=inf), "`lease_seconds` is inf;"),
    (reserve(wait_seconds=-0.1), "`wait_seconds` is -0.1;"),
    (reserve(wait_seconds=nan), "`wait_seconds` is nan;"),
    (reserve(wait_seconds=inf), "`wait_seconds` is inf;"),
    (reserve(cost={"requests": 0.0}), "`cost` of 'requests' is 0;"),
    (reserve(cost={"requests": -5.0}), "`cost` of 'requests' is -5;"),
    (reserve(cost={"requests": 1e300}), "`cost` of 'requests' is 1e+300;"),
    (reserve(cost={str(number): 1.0 for number in range(65)}), "`cost` may name 64 limits"),
    (reserve(cost={"n" * 129: 1.0}), "`cost` may name 64 limits"),
    (reserve(want="w" * 1_025), "`want` has 1025 characters;"),
    (reserve(caller="w" * 1_025), "`caller` has 1025 characters;"),
    (reserve(target="w" * 1_025), "`target` has 1025 characters;"),
    (report(actual={"tokens": nan}), "`actual` of 'tokens' is nan;"),
    (report(actual={"tokens": -1.0}), "`actual` of 'tokens' is -1;"),
    (report(status=99), "`status` is 99;"),
    (report(status=2**31), "`status` is 2.14748e+09;"),
    (report(fence=2**64 - 1), "`fence` is 1.84467e+19;"),
    (report(headers={str(number): "" for number in range(129)}), "`headers` may be 128"),
    (report(headers={"a": "x" * 4_097}), "`headers` may be 128"),
    (pb.QuotaQuestion(renew=LEASE), "`fence` is 9.22337e+18;"),
    (pb.QuotaQuestion(release=LEASE), "`fence` is 9.22337e+18;"),
    (pb.QuotaQuestion(observe=pb.QuotaAnswer(target="api", status=1_000)), "`status` is 1000;"),
    (pb.QuotaQuestion(enable=pb.QuotaEnable(target="t" * 2_000)), "`target` has 2000 characters;"),
]


@pytest.mark.parametrize(("question", "says"), WRONG)
def test_what_may_not(question: pb.QuotaQuestion, says: str) -> None:
    assert mistake(question).startswith(says)
