"""By which hosts and from which origins the console may be used."""

import pytest

from services.console.hosts import Origins, is_loopback


@pytest.mark.parametrize(
    ("authority", "accepted"),
    [
        ("localhost:9099", True),
        ("LOCALHOST", True),
        ("127.0.0.1:9099", True),
        ("[::1]:9099", True),
        ("10.1.2.3", True),
        ("console.example:443", True),
        ("Console.Example", True),
        ("evil.example", False),
        ("console.example.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("console.example, evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_only_addresses_and_known_names_are_accepted(authority: str, accepted: bool) -> None:
    assert Origins("http", ("console.example",)).accepts(authority) is accepted


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"host": "a:1", "origin": "http://a:1"}, True),
        ({"host": "a:1", "origin": "http://a:2"}, False),
        ({"host": "a:1", "origin": "https://a:1"}, False),
        ({"host": "a:1", "origin": "null"}, False),
        ({"host": "a:1"}, False),
        ({}, False),
    ],
)
def test_only_pages_of_the_console_have_its_origin(headers: dict[str, str], same: bool) -> None:
    assert Origins("http").is_own(headers) is same


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"host": "a.example", "origin": "https://a.example"}, True),
        ({"host": "10.1.2.3:9099", "origin": "https://a.example"}, True),
        ({"host": "localhost:9099", "origin": "http://localhost:9099"}, True),
        ({"host": "a.example", "origin": "http://a.example"}, False),
        ({"host": "a.example", "origin": "https://b.example"}, False),
        ({"host": "a.example"}, False),
    ],
)
def test_behind_a_proxy_pages_have_the_public_origin(headers: dict[str, str], same: bool) -> None:
    assert Origins("http", ("a.example",), "https://a.example").is_own(headers) is same


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False)]
)
def test_loopback_addresses_are_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
