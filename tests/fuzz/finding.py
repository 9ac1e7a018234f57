"""What a fuzzer has found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect. ``where``: the target, and the part of it. ``iteration`` and ``count``: those to replay.

    ``data`` is what was decoded.
    """

    where: str
    iteration: int
    what: str
    data: bytes = b""
    count: int = 1
