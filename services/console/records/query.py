"""What a page asks for: which records, which of them it wants to see, and how. No IO."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.records.record import Record
from services.console.records.decoding import AUTO, FORMS, Decoder
from services.console.records.json_path import Condition, WrongPath, parse
from services.console.requests import WrongRequest, number

BEGINNING, NEWEST, OFFSET, TIME, END = STARTS = ("beginning", "newest", "offset", "time", "end")
MOST_PARTITIONS = 200
"""How many partitions are read together."""
_LONGEST_TEXT = 1000
_MOST_OFFSET = 2**63 - 1
_POSITION = re.compile(r"(\d{1,10}):(\d{1,19})")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records are shown: those that meet all conditions. Texts are compared by their bytes in UTF-8."""

    key: bytes = b""
    value: bytes = b""
    path: Condition | None = None

    @property
    def passes_all(self) -> bool:
        return not self.key and not self.value and self.path is None

    def passes(self, record: Record, decoder: Decoder) -> bool:
        if self.key and (record.key is None or self.key not in record.key):
            return False
        if self.value and (record.value is None or self.value not in record.value):
            return False
        if self.path is None:
            return True
        found, document = decoder.document(record.value)
        return found and self.path.holds(document)


@dataclass(frozen=True, slots=True)
class Query:
    """``partition``: None for all. ``number``: the offset, the time in ms, or how many of the newest records.

    ``at``: the next offset of each partition, to continue an earlier request. It replaces the start.
    """

    partition: int | None
    start: str
    number: int
    at: Mapping[int, int] | None
    filter: Filter
    limit: int
    key_form: str
    value_form: str


def parse_query(values: Mapping[str, str], *, most: int, limit: int) -> Query:
    """Parse the parameters of an address. ``most``: the maximum of ``limit``. Raises WrongRequest."""
    start = values.get("start", NEWEST)
    if start not in STARTS:
        raise WrongRequest(f"start={start!r} is not one of {', '.join(STARTS)}")
    named = {NEWEST: "newest", OFFSET: "offset", TIME: "time"}.get(start)
    path = values.get("path", "").strip()
    try:
        condition = parse(path) if path else None
    except WrongPath as error:
        raise WrongRequest(str(error)) from None
    return Query(
        partition=number("partition", values["partition"], most=2**31 - 1) if values.get("partition") else None,
        start=start,
        number=number(named, values.get(named) or (str(limit) if start == NEWEST else "")) if named else 0,
        at=_positions(values["at"]) if values.get("at") else None,
        filter=Filter(_text(values, "key"), _text(values, "value"), condition),
        limit=number("limit", values.get("limit") or str(min(limit, most)), least=1, most=most),
        key_form=_form(values, "key_form"),
        value_form=_form(values, "value_form"),
    )


def start_of(query: Query, place: int, *, first: int, end: int) -> int:
    """Return the offset at which a partition is read first, unless it is by time. ``first``, ``end``: its log.

    Raises WrongRequest if the requested partition has no such offset.
    """
    match query.start:
        case "beginning":
            return first
        case "newest":
            return max(first, end - query.number)
        case "offset":
            if query.partition is not None and not first <= query.number <= end:
                raise WrongRequest(f"partition {place} has the offsets from {first} to {end}, not {query.number}")
            return min(max(query.number, first), end)
        case _:
            return end


def as_positions(positions: Mapping[int, int]) -> str:
    """Return positions as they are in an address."""
    return ",".join(f"{place}:{offset}" for place, offset in sorted(positions.items()))


def _positions(text: str) -> dict[int, int]:
    found = [_POSITION.fullmatch(part) for part in text.split(",")]
    places = {int(each[1]): int(each[2]) for each in found if each is not None}
    if len(places) != len(found) or max(places.values()) > _MOST_OFFSET or len(places) > MOST_PARTITIONS:
        raise WrongRequest("at is not a list of up to 200 partitions with their offsets, as in 0:17,1:4")
    return places


def _text(values: Mapping[str, str], name: str) -> bytes:
    text = values.get(name, "")
    if len(text) > _LONGEST_TEXT:
        raise WrongRequest(f"{name} has more than {_LONGEST_TEXT} characters")
    return text.encode("utf-8", "surrogateescape")


def _form(values: Mapping[str, str], name: str) -> str:
    form: Any = values.get(name, AUTO)
    if form not in FORMS:
        raise WrongRequest(f"{name}={form!r} is not one of {', '.join(FORMS)}")
    return str(form)
