"""The message of SASL OAUTHBEARER (RFC 7628): a bearer token."""

import re

from kafscale.errors import KafscaleError

_MESSAGE = re.compile(
    rb"n,(?:a=(?P<acts_for>[^\x00,]*))?,\x01"
    rb"(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*?"
    rb"auth=[Bb]earer +(?P<token>[A-Za-z0-9._~+/-]+=*)\x01"
    rb"(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*\x01"
)

CONTINUE = b"\x01"
"""What a client sends after an error, so that the server can end the exchange."""


class BearerFailed(KafscaleError):
    """The message is not valid. The error does not contain what the client sent."""


def parse(message: bytes) -> tuple[str, str]:
    """Return the token and the user that the client wants to act for, empty if it names none. Raises BearerFailed."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise BearerFailed("the message has no bearer token")
    try:
        return found["token"].decode(), (found["acts_for"] or b"").decode()
    except UnicodeDecodeError:
        raise BearerFailed("the message is not UTF-8") from None
