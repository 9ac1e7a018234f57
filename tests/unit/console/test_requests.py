"""Names and numbers in the addresses of requests."""

import pytest

from services.console.api import reads
from services.console.api.changes import change_for
from services.console.histories import Histories
from services.console.requests import WrongRequest, name, number
from services.console.settings import ConsoleSettings


def test_a_name_is_decoded_once() -> None:
    assert name("a%2Fb%2520") == "a/b%20"


async def test_a_name_that_is_not_utf8_is_refused_in_every_path() -> None:
    histories = Histories(None, ConsoleSettings(), "")  # type: ignore[arg-type]
    with pytest.raises(WrongRequest, match="UTF-8"):
        reads.found("/api/topics/%ff", "")
    with pytest.raises(WrongRequest, match="UTF-8"):
        change_for("DELETE", "/api/groups/%ff", {})
    with pytest.raises(WrongRequest, match="UTF-8"):
        await histories.find("/api/groups/%ff/lag", "")


def test_the_number_of_a_segment_is_as_strict() -> None:
    assert reads.found("/api/topics/t/partitions/0/segments", "start=10") is not None
    with pytest.raises(WrongRequest, match="start="):
        reads.found("/api/topics/t/partitions/0/segments", "start=%2B1_0")


@pytest.mark.parametrize("text", ["", "+1", "1_0", " 1", "\u0661", "-1", "11", "1" * 5000])
def test_only_decimal_digits_are_a_number(text: str) -> None:
    assert number("limit", "10", most=10) == 10
    with pytest.raises(WrongRequest, match=r"limit=.* is not a number from 0 to 10"):
        number("limit", text, most=10)
