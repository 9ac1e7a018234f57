"""Whole scenarios as readable text in tests/golden/groups/*.txt.

``KAFSCALE_REWRITE_GOLDEN=1`` rewrites the files. The difference must then be reviewed.
"""

import os
from pathlib import Path

import pytest

from tests.unit.coordinator.transcript import replay

_SCENARIOS = Path(__file__).parents[2] / "golden" / "groups"


@pytest.mark.parametrize("path", sorted(_SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected = path.read_text()
    found = replay(expected)
    if os.environ.get("KAFSCALE_REWRITE_GOLDEN") == "1":
        path.write_text(found)
    else:
        assert found == expected


def test_scenarios_exist_and_have_results() -> None:
    texts = [path.read_text() for path in _SCENARIOS.glob("*.txt")]
    assert len(texts) >= 6
    assert all("\n> " in text for text in texts)
