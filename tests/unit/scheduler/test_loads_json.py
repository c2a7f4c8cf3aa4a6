"""Is SGLang's `/v1/loads` read rightly, and what is not one told apart?"""

import pytest

from luftpause.scheduler.core.events import Load
from luftpause.scheduler.loads_json import load
from luftpause.scheduler.metrics_text import Unread

RANK = b'{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":2,"num_used_tokens":40,"max_total_num_tokens":100,"token_usage":0.4}'
OTHER = b'{"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":0,"max_total_num_tokens":100,"token_usage":0.0}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"loads":[' + RANK + b"]}", Load(3, 2, 100, 40)),
        (b'{"version":"0.5.23","dp_rank_count":2,"loads":[' + RANK + b"," + OTHER + b"]}", Load(4, 2, 200, 40)),
        (b'{"loads":[{"num_running_reqs":3,"num_waiting_reqs":2}]}', Load(3, 2)),
        (b'{"loads":[' + RANK + b',{"num_running_reqs":1,"num_waiting_reqs":0}]}', Load(4, 2)),
        (b'{"loads":[{"num_running_reqs":3,"num_waiting_reqs":2,"num_used_tokens":4}]}', Load(3, 2)),
    ],
)  # fmt: skip
def test_the_loads_of_all_ranks_are_summed(body: bytes, expected: Load):
    assert load(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"loads":[]}',
        b'{"loads":[{"dp_rank":0,"num_running_reqs":3}]}',
        b'{"loads":[{"num_running_reqs":-1,"num_waiting_reqs":0}]}',
        b'{"loads":[{"num_running_reqs":1e300,"num_waiting_reqs":0}]}',
        b'{"loads":[{"num_running_reqs":NaN,"num_waiting_reqs":0}]}',
        b'{"loads":[' + RANK + b',{"num_running_reqs":null,"num_waiting_reqs":0}]}',
        b'{"loads":[{"worker":"http://a","load":-1}],"total_workers":1,"failed":1}',  # a router's
    ],
)
def test_anything_else_is_no_load(body: bytes):
    assert isinstance(load(body), Unread)
