"""What is wrong with a request of a browser, and the names and numbers in its address."""

import re
from urllib.parse import unquote

_DIGITS = re.compile(r"[0-9]{1,19}")


class WrongRequest(Exception):
    """The request is not valid. The message says why."""


def name(text: str) -> str:
    """Return the name that a part of a path stands for. Raises WrongRequest."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise WrongRequest("the path is not UTF-8") from None


def number(what: str, text: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Return a decimal number. ``what`` names it in the error. Raises WrongRequest."""
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise WrongRequest(f"{what}={text!r} is not a number from {least} to {most}")
    return int(text)
