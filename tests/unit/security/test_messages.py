"""The first messages of PLAIN and OAUTHBEARER."""

import pytest

from kafscale.security import bearer, plain


def test_plain() -> None:
    assert plain.parse(b"\x00zoe\x00pass\xc3\xb6") == ("zoe", "passö")
    assert plain.parse(b"zoe\x00zoe\x00p") == ("zoe", "p")


@pytest.mark.parametrize(
    "message", [b"", b"zoe", b"\x00zoe\x00", b"\x00\x00p", b"bob\x00zoe\x00p", b"\x00a\x00b\x00c", b"\x00\xff\x00p"]
)
def test_an_invalid_plain_message_is_refused_without_its_text(message: bytes) -> None:
    with pytest.raises(plain.PlainFailed) as failed:
        plain.parse(message)
    assert "zoe" not in str(failed.value)


def test_bearer() -> None:
    assert bearer.parse(b"n,,\x01auth=Bearer a.b-c_d==\x01\x01") == ("a.b-c_d==", "")
    assert bearer.parse(b"n,a=ann,\x01traceId=7\x01auth=BEARER  t\x01x=y\x01\x01") == ("t", "ann")
    assert bearer.parse(b"n,a=CN=3Dann=2CC=3DDE,\x01auth=Bearer t\x01\x01") == ("t", "CN=ann,C=DE")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,a=CN=ann,\x01auth=Bearer t\x01\x01",
        b"n,a=\xff,\x01auth=Bearer t\x01\x01",
    ],
)
def test_an_invalid_bearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(bearer.BearerFailed):
        bearer.parse(message)


def test_the_json_of_a_refusal() -> None:
    assert bearer.refusal("invalid_token") == '{"status":"invalid_token"}'
    assert bearer.refusal("insufficient_scope", 'a"b') == '{"status":"insufficient_scope","scope":"a\\"b"}'
