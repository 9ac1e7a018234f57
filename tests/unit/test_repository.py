"""Rules of the tree that no other tool checks."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 450
# Written in halves, so that this file keeps its own rule.
REGISTRY_HOSTS = [
    "pypi" r"\.org",
    "python" r"hosted\.org",
    "npmjs" r"\.org",
    "deb" r"\.debian\.org",
    "maven" r"\.org",
    "proxy" r"\.golang\.org",
    "sum" r"\.golang\.org",
]


def _tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def test_no_file_names_a_package_registry() -> None:
    hosts = re.compile("|".join(REGISTRY_HOSTS))
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}" for path in _tracked() for match in [hosts.search(_text(path))] if match
    ]
    assert found == []


@pytest.mark.parametrize(
    "name",
    ["requirements.lock", "requirements-dev.lock", "requirements-spark.lock", "tests/spark/spark40/requirements.lock"],
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


def test_modules_stay_readable_in_one_sitting() -> None:
    generated = ROOT / "kafscale" / "v1"
    lengths = {
        str(path.relative_to(ROOT)): len(_text(path).splitlines())
        for path in _tracked("*.py")
        if generated not in path.parents
    }
    assert len(lengths) > 50
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_open_ends_in_the_product() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        str(path.relative_to(ROOT))
        for path in _tracked("kafscale/*.py", "services/*.py", "spark/*.py")
        if marks.search(_text(path))
    ]
    assert found == []


def test_every_make_target_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert described == set(phony[1].split())
