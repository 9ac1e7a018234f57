"""The message of SASL PLAIN (RFC 4616): a user name and a password."""

from kafscale.errors import KafscaleError

_LONGEST = 64 << 10


class PlainFailed(KafscaleError):
    """The message is not valid. The error does not contain what the client sent."""


def message(name: str, password: bytes) -> bytes:
    """Return the message of a client."""
    return b"\x00" + name.encode() + b"\x00" + password


def parse(message: bytes) -> tuple[str, str]:
    """Return the user name and the password. Raises PlainFailed."""
    try:
        parts = message.decode().split("\x00")
    except UnicodeDecodeError:
        raise PlainFailed("the message is not UTF-8") from None
    if len(message) > _LONGEST or len(parts) != 3:
        raise PlainFailed("the message does not have three parts")
    acts_for, name, password = parts
    if not name or not password:
        raise PlainFailed("the user name or the password is empty")
    if acts_for and acts_for != name:
        raise PlainFailed("a client cannot act for another user")
    return name, password
