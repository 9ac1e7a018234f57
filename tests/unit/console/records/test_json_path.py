"""Conditions on JSON: what they select, and that no text or document makes them expensive."""

import pytest

from services.console.records.json_path import WrongPath, parse

DOCUMENT = {
    "order": {"id": 17, "paid": True, "total": 1.5, "refund": None, "a key": "x"},
    "items": [{"name": "box", "count": 2}, {"name": "rope", "count": 10}],
    "note": "It came late.",
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("$.order.id == 17", True),
        ("$.order.id == 17.0", True),
        ('$.order.id == "17"', False),
        ("$.order.id != 17", False),
        ('$["order"]["a key"] == "x"', True),
        ("$['order']['a key']", True),
        ("$.order.paid == true", True),
        ("$.order.paid == 1", False),
        ("$.order.paid > 0", False),
        ("$.order.refund", True),
        ("$.order.refund == null", True),
        ("$.order.missing", False),
        ("$.order.missing != 1", False),
        ("$.order.id.deeper", False),
        ("$.items[0].count>=2", True),
        ("$.items[-1].count < 10", False),
        ("$.items[2]", False),
        ('$.items[*].name == "rope"', True),
        ("$.items[*].count > 10", False),
        ("$[*][*].count > 9", True),
        ('$.note contains "late"', True),
        ('$.order.id contains "1"', False),
        ('$.note < "J"', True),
        ("$", True),
    ],
)
def test_a_condition_holds_or_not(text: str, holds: bool) -> None:
    assert parse(text).holds(DOCUMENT) is holds


@pytest.mark.parametrize(
    "text",
    [
        "order.id",
        "$.",
        "$..id",
        "$.a = 1",
        "$.a == ",
        "$.a == 'x'",
        "$.a == {}",
        "$.a contains 1",
        "$[a]",
        "$.a == " + "[" * 400,
        "$" + ".a" * 300,
        "$" + "[0]" * 100,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(WrongPath):
        parse(text)


def test_only_so_many_values_are_looked_at() -> None:
    document = [[[[0] * 100] * 100] * 100] * 100
    assert parse("$[*][*][*][*] == 0").holds(document)
    assert not parse("$[*][*][*][*] == 1").holds(document)
