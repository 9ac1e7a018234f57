"""What a release installs is pinned and hashed, and comes from wherever the installer is set to look."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-spark.lock",
        "tests/spark/spark40/requirements.lock",
        "tests/ecosystem/python/requirements.lock",
    ],
)
def test_every_locked_requirement_is_pinned_and_hashed_and_names_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith("-")]
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if line and not line.startswith("#")))
    assert len(entries) > 10
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==\S+ \\\n", entry), entry
        assert "--hash=sha256:" in entry, entry
