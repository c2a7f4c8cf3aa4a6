"""Is one upstream one address, however its URL was written?"""

import pytest

from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import api_at, base_url, host_of, listening_host, page_origin, served_host


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
    ("url", "chat"),
    [
        ("http://e:1", "http://e:1/v1/chat/completions"),
        ("http://e:1/prefix/v1/", "http://e:1/prefix/v1/chat/completions"),
        ("https://api.example/api/paas/v4", "https://api.example/api/paas/v4/chat/completions"),
        ("https://api.example/api/v3/", "https://api.example/api/v3/chat/completions"),
        ("https://api.example/v1beta/openai/", "https://api.example/v1beta/openai/chat/completions"),
        ("https://api.example/v1/openai", "https://api.example/v1/openai/chat/completions"),
        ("https://api.example/xv4", "https://api.example/xv4/v1/chat/completions"),
        ("https://api.example/openai", "https://api.example/openai/v1/chat/completions"),
    ],
)
def test_a_version_of_its_own_stands_in_the_place_of_v1(url: str, chat: str) -> None:
    assert api_at(base_url(url), "/v1/chat/completions") == chat
    assert api_at(base_url(url), "/health") == base_url(url) + "/health"


@pytest.mark.parametrize(
    ("written", "host"),
    [("gpu", "gpu"), ("GPU:8080", "gpu"), ("[::1]", "[::1]"), ("::1", "[::1]"), ("[::1]:8080", "[::1]"), ("10.0.0.1:80", "10.0.0.1"),
     ("*", "*")],
)  # fmt: skip
def test_a_host_that_is_served_is_what_a_host_header_says(written: str, host: str) -> None:
    assert served_host(written) == host


@pytest.mark.parametrize("written", ["http://gpu", "gpu/x", "*.example", "", "a b", "a@b"])
def test_a_host_that_no_header_says_is_a_clear_error(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        served_host(written)
    assert "alone" in caught.value.message


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("http://localhost:3000", "http://localhost:3000"), ("http://LocalHost:3000/", "http://localhost:3000"), ("null", "null"),
        ("vscode-webview://abc", "vscode-webview://abc"), ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)  # fmt: skip
def test_an_origin_is_what_browsers_send(written: str, origin: str) -> None:
    assert page_origin(written) == origin


@pytest.mark.parametrize(
    ("written", "says"), [("*", "every web page"), ("localhost:3000", "scheme"), ("http://a/b", "alone"), ("http://*.a", "alone"),
     ("", "alone")]
)  # fmt: skip
def test_an_origin_that_no_browser_sends_is_a_clear_error(written: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        page_origin(written)
    assert says in caught.value.message


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
