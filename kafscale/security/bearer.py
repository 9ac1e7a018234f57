"""The messages of SASL OAUTHBEARER (RFC 7628): a bearer token, and the answer if it is refused.

The client acknowledges a refusal by another message, after which the server ends the exchange.
"""

import json
import re

from kafscale.errors import KafscaleError

_MESSAGE = re.compile(
    rb"n,(?:a=(?P<acts_for>[^\x00=,]*(?:=(?:2C|3D)[^\x00=,]*)*))?,\x01"
    rb"(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*?"
    rb"auth=(?i:bearer) +(?P<token>[A-Za-z0-9._~+/-]+=*)\x01"
    rb"(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*\x01"
)


class BearerFailed(KafscaleError):
    """The message is not valid. The error does not contain what the client sent."""


def message(token: str) -> bytes:
    """Return the message with which a client presents its token."""
    return b"n,,\x01auth=Bearer %b\x01\x01" % token.encode()


def parse(message: bytes) -> tuple[str, str]:
    """Return the token and the user that the client wants to act for, empty if it names none. Raises BearerFailed."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise BearerFailed("the message has no bearer token")
    try:
        acts_for = (found["acts_for"] or b"").decode()
    except UnicodeDecodeError:
        raise BearerFailed("the message is not UTF-8") from None
    return found["token"].decode(), acts_for.replace("=2C", ",").replace("=3D", "=")


def refusal(status: str, scope: str = "") -> str:
    """Return the JSON that tells a client why its token is refused: a ``status`` of RFC 6750, and the scope that the
    token needs."""
    fields = {"status": status, "scope": scope} if scope else {"status": status}
    return json.dumps(fields, separators=(",", ":"))
