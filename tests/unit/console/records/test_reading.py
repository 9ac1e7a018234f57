"""Reads of records: each ends at a bound, says how far it came, and leaves nothing out when it is continued."""

from typing import Any

import pytest

from kafscale.records.codecs import Codec
from services.console.records.query import parse_query
from services.console.records.reading import Reading
from services.console.requests import WrongRequest
from tests.unit.console.records.fakes import FETCH_BYTES, Log, settings, sieve


async def read(log: Log, *, read_bytes: str = "64MB", **values: str) -> dict[str, Any]:
    query = parse_query(values, most=500, limit=100)
    reading = Reading(query, sieve(query), settings(READ_BYTES=read_bytes))
    await reading.run(log)  # type: ignore[arg-type]
    return reading.answer()


def places(answer: dict[str, Any]) -> list[tuple[int, int]]:
    return [(each["partition"], int(each["offset"])) for each in answer["records"]]


@pytest.mark.parametrize("limit", ["1", "7", "100"])
async def test_a_read_that_is_continued_finds_every_matching_record_once(limit: str) -> None:
    log = Log(partitions=2)
    for number in range(60):
        log.append([b"%d even" % number, b"odd"] * (number % 3 + 1), partition=number % 2)
    every = [(place, offset) for place in (0, 1) for offset in range(0, log.ends[place], 2)]
    answer = await read(log, start="beginning", value="even", limit=limit)
    found = places(answer)
    while answer["next"]:
        assert len(answer["records"]) <= int(limit)
        answer = await read(log, at=answer["next"], value="even", limit=limit)
        found += places(answer)
    assert sorted(found) == every


async def test_a_read_without_a_match_ends_at_the_bound_of_bytes_and_says_how_far_it_came() -> None:
    log = Log()
    for _ in range(100):
        log.append([b"x" * 8000])
    answer = await read(log, start="beginning", value="y", read_bytes="64KB")
    assert answer["records"] == []
    assert 64 << 10 <= log.fetched <= (64 << 10) + FETCH_BYTES
    assert (answer["scanned"], answer["next"], answer["left"]) == (10, "0:10", "90")


async def test_the_newest_of_all_partitions_are_found_whatever_order_they_arrive_in() -> None:
    log = Log(partitions=3)
    for place, size in enumerate((50, 10, 30)):
        log.append([b"v"] * size, partition=place)
    answer = await read(log, start="newest", newest="5", limit="5")
    assert places(answer) == [(0, 45), (0, 46), (0, 47), (0, 48), (0, 49)]
    assert answer["next"] == ""


async def test_a_batch_that_is_too_large_is_left_out_and_named() -> None:
    log = Log()
    log.append([b"a"])
    log.append([b"x" * (2 << 20)], codec=Codec.GZIP)
    log.append([b"b"])
    query = parse_query({"start": "beginning"}, most=500, limit=100)
    reading = Reading(query, sieve(query), settings(DECODED_BYTES="1MB"))
    await reading.run(log)  # type: ignore[arg-type]
    answer = reading.answer()
    assert [each["value"]["text"] for each in answer["records"]] == ["a", "b"]
    assert "offsets 1 to 1" in answer["faults"][0]


@pytest.mark.parametrize(
    "values",
    [
        {"start": "offset", "offset": "11", "partition": "0"},
        {"start": "somewhere"},
        {"start": "offset"},
        {"limit": "501"},
        {"limit": "0"},
        {"at": "0:1,0:2x"},
        {"at": ",".join(f"{place}:0" for place in range(300))},
        {"partition": "4"},
        {"value_form": "xml"},
        {"value": "x" * 2000},
        {"path": "order"},
    ],
)
async def test_wrong_parameters_are_refused(values: dict[str, str]) -> None:
    log = Log()
    log.append([b"v"] * 10)
    with pytest.raises(WrongRequest):
        await read(log, **values)
