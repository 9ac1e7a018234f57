"""Whole scenarios as readable text: tests/golden/groups/*.txt.

With ``KAFSCALE_REWRITE_GOLDEN=1`` the files are written anew; the difference is then to be read in review.
"""

import os
from pathlib import Path

import pytest

from tests.unit.coordinator.transcript import replay

_SCENARIOS = Path(__file__).parents[2] / "golden" / "groups"


@pytest.mark.parametrize("path", sorted(_SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    kept = path.read_text()
    found = replay(kept)
    if os.environ.get("KAFSCALE_REWRITE_GOLDEN") == "1":
        path.write_text(found)
    else:
        assert found == kept


def test_there_are_scenarios_and_they_say_something() -> None:
    texts = [path.read_text() for path in _SCENARIOS.glob("*.txt")]
    assert len(texts) >= 6
    assert all("\n> " in text for text in texts)
