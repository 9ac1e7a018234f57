"""Retention times such as ``24h``, ``7d``, ``1h30m`` and ``forever``."""

import re

FOREVER = "forever"
PATTERN = r"^(forever|([1-9][0-9]{0,8}(ms|s|m|h|d|w))+)$"
"""The pattern in the schema of KafscaleTopic."""
MOST_CHARACTERS = 64

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TERM = re.compile(r"([0-9]+)([a-z]+)")


def retention_ms(text: str) -> int:
    """Convert to Kafka's ``retention.ms``, -1 for forever. Raises ValueError."""
    if len(text) > MOST_CHARACTERS or not re.fullmatch(PATTERN, text):
        raise ValueError(text)
    if text == FOREVER:
        return -1
    return sum(int(number) * _UNIT_MS[unit] for number, unit in _TERM.findall(text))
