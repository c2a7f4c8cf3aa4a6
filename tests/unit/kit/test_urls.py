"""Is one upstream one address, however its URL was written?"""

import pytest

from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import base_url, host_of, listening_host


@pytest.mark.parametrize(
    "url", ["http://e:1", "http://e:1/", "http://e:1/v1", "http://e:1/v1/", "http://e:1//", "http://e:1/v1/v1", " http://e:1/v1"]
)
def test_all_spellings_of_a_base_url_are_the_same(url: str):
    assert base_url(url) == "http://e:1"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://api.example/openai/v1/", "https://api.example/openai"),
        ("https://api.example/v1/openai/", "https://api.example/v1/openai"),
        ("https://api.example/xv1", "https://api.example/xv1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("https://name.services.example/models", "https://name.services.example/models"),
    ],
)
def test_a_path_prefix_stays(url: str, base: str):
    assert base_url(url) == base


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("e:1", "http://"),
        ("http:///v1", "names no host"),
        ("http://e:port/v1", "port"),
        ("http://e:0", "port 0"),
        ("http://e:1/v1?x=1", "query"),
        ("http://user:secret@e:1", "api_key_env"),
        ("http://[::1", "Invalid IPv6"),
        ("http://$HOST:8000", "'$' can't stand in a host"),
        ("https://<pod>-8000.proxy.example", "'<' can't stand in a host"),
        ("https://…-8000.proxy.example", "'…' can't stand in a host"),
        ("http://e:1/v1/chat/completions", "one API"),
        ("http://e:1/openai/v1/messages/", "one API"),
        ("http://e:1/v1/models", "one API"),
    ],
)
def test_a_url_that_cannot_be_a_base_is_a_clear_error(url: str, says: str):
    with pytest.raises(ConfigError) as caught:
        base_url(url)
    assert says in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("header", "host"),
    [("localhost", "localhost"), ("LocalHost:80", "localhost"), ("[::1]:5001", "[::1]"), ("[::1]", "[::1]"), ("", ""), (" a:1 ", "a"),
     ("a@b:1", "a@b:1"), ("a:b:c", "a:b:c"), ("::1", "::1")],
)  # fmt: skip
def test_which_host_a_request_names(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "node_1.example"])
def test_what_a_service_may_listen_on(host: str) -> None:
    assert listening_host(host) == host


@pytest.mark.parametrize("host", ["", "*", "[::1]", "localhost:80", "http://localhost", "a b", "a/b"])
def test_what_no_service_can_listen_on(host: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        listening_host(host)
