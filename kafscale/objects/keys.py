"""Checks of keys and arguments that all object stores share (see ``interface.py``)."""

import re
from collections.abc import Iterable

from kafscale.objects.interface import MAX_KEYS

_MAX_KEY_BYTES = 1024  # S3's limit
# Segments of at most 255 bytes, the limit of a file name, without control characters, and neither "." nor "..".
_KEY = re.compile(rb"(?:(?!\.\.?(?:/|\Z))[^/\x00-\x1f\x7f]{1,255}(?:/(?!\Z)|\Z))+")


def check_key(key: str) -> bytes:
    """Return the key's UTF-8 bytes, or raise ValueError."""
    encoded = key.encode()
    if len(encoded) > _MAX_KEY_BYTES or _KEY.fullmatch(encoded) is None:
        raise ValueError(f"not an object key: {key!r}")
    return encoded


def check_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys of a delete as a list, or raise ValueError."""
    checked = list(keys)
    if len(checked) > MAX_KEYS:
        raise ValueError(f"{len(checked)} keys in one delete, more than {MAX_KEYS}")
    for key in checked:
        check_key(key)
    return checked


def may_begin_key(prefix: str) -> bool:
    """Return whether the complete segments of ``prefix`` are valid in keys."""
    return not any(segment in ("", ".", "..") for segment in prefix.split("/")[:-1])


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise ValueError(f"not a range: {length} bytes from {start}")


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_KEYS:
        raise ValueError(f"a page of {limit} objects, not of 1 to {MAX_KEYS}")
