"""Releases of a small tree that has the files which a release changes."""

import os
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafscale_tools.release.__main__ import main
from kafscale_tools.release.edits import PLACES, PYPROJECT, Refused, check_version, edited, present_version
from tests.servers.tools import tool
from tests.support.repositories import SETTINGS, commit_all, git

ROOT = Path(__file__).parents[3]
PRESENT = present_version((ROOT / PYPROJECT).read_text())
NEXT = f"{int(PRESENT.split('.')[0]) + 1}.0.0"
OLDER = "## 0.0.1 - 2020-01-01\n\n- Older.\n"
CHANGELOG = f"# Changelog\n\n## Unreleased\n\n### Added\n\n- New.\n\n{OLDER}"
EMPTY_CHANGELOG = f"# Changelog\n\n## Unreleased\n\n### Added\n\n{OLDER}"
MAKEFILE = """
generate:
	@echo generated > docs/generated.md
image:
	@touch ../image
"""


class Tree:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory / "tree"
        self._programs = directory / "programs"
        for path in (*PLACES, "README.md", "LICENSE", "kafscale/__init__.py", ".gitignore"):
            (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.directory / path)
        (self.directory / "spark").mkdir()
        (self.directory / "CHANGELOG.md").write_text(CHANGELOG)
        (self.directory / "Makefile").write_text(MAKEFILE)
        commit_all(self.directory)
        self._programs.mkdir()
        self.set_docker_status(1)
        monkeypatch.chdir(self.directory)
        monkeypatch.setenv("PATH", str(self._programs), prepend=os.pathsep)
        for name, value in SETTINGS.items():
            monkeypatch.setenv(name, value)

    def set_docker_status(self, status: int) -> None:
        docker = self._programs / "docker"
        docker.write_text(f"#!/bin/sh\nexit {status}\n")
        docker.chmod(0o755)

    def release(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    def git(self, *arguments: str) -> str:
        return git(self.directory, *arguments)

    def write(self, path: str, text: str) -> None:
        """Writes the file and commits it."""
        (self.directory / path).write_text(text)
        commit_all(self.directory)

    def state(self) -> tuple[str, ...]:
        return self.git("rev-parse", "HEAD"), self.git("status", "--porcelain"), self.git("tag")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    tool("git", "git")
    return Tree(tmp_path, monkeypatch)


def _assert_refused(tree: Tree, reason: str, version: str = NEXT) -> None:
    before = tree.state()
    for options in ((), ("--dry-run",)):
        done = tree.release(version, *options)
        assert (done.exit_code, done.stdout) == (2, "")
        assert reason in done.stderr
    assert tree.state() == before


def test_a_release_is_a_commit_a_tag_and_packages(tree: Tree) -> None:
    done = tree.release(NEXT)
    assert done.exit_code == 0, done.output
    assert tree.git("log", "--format=%s", "-1") == f"Release {NEXT}"
    assert tree.git("rev-list", "-1", f"v{NEXT}") == tree.git("rev-parse", "HEAD")
    assert tree.git("status", "--porcelain") == ""
    changed = tree.git("diff", "--name-only", "HEAD~1").splitlines()
    assert changed == sorted([*PLACES, "CHANGELOG.md", "docs/generated.md"])
    for path, pattern in PLACES.items():
        text = (tree.directory / path).read_text()
        assert (text.count(pattern.format(NEXT)), text.count(pattern.format(PRESENT))) == (1, 0), path
    built = {path.name for path in (tree.directory / "dist").iterdir()}
    assert built == {f"kafscale-{NEXT}-py3-none-any.whl", f"kafscale-{NEXT}.tar.gz"}


def test_without_a_docker_engine_the_image_is_left_to_do(tree: Tree) -> None:
    done = tree.release(NEXT)
    assert "left out: no Docker engine answers" in done.stdout
    left = done.stdout.partition("What is left to do:\n")[2]
    assert f"git push origin HEAD v{NEXT}" in left
    assert "make image" in left
    assert not (tree.directory.parent / "image").exists()


def test_with_a_docker_engine_the_image_is_built(tree: Tree) -> None:
    tree.set_docker_status(0)
    done = tree.release(NEXT)
    assert (tree.directory.parent / "image").exists()
    left = done.stdout.partition("What is left to do:\n")[2]
    assert f"docker push REGISTRY/kafscale:{NEXT}" in left
    assert "make image" not in left


def test_a_dry_run_shows_the_changes_and_writes_nothing(tree: Tree) -> None:
    before = tree.state()
    done = tree.release(NEXT, "--dry-run")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert f'-version = "{PRESENT}"' in lines
    assert f'+version = "{NEXT}"' in lines
    assert f"+## {NEXT} - {datetime.now(UTC).date()}" in lines
    assert f"would tag the commit v{NEXT}" in lines
    assert tree.state() == before
    assert not (tree.directory / "dist").exists()


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3rc1", "01.2.3", "", "1.2.3\n", PRESENT, "0.0.1"])
def test_a_version_that_is_malformed_or_not_higher_is_refused(tree: Tree, version: str) -> None:
    _assert_refused(tree, "version", version)


def test_versions_are_compared_as_numbers() -> None:
    check_version("0.10.0", "0.9.9")
    with pytest.raises(Refused, match=r"0\.9\.9 is not higher than the present version 0\.10\.0"):
        check_version("0.9.9", "0.10.0")


@pytest.mark.parametrize("path", ["README.md", "new.txt"])
def test_a_tree_with_changes_is_refused(tree: Tree, path: str) -> None:
    (tree.directory / path).write_text("changed")
    _assert_refused(tree, path)


def test_a_changelog_without_entries_is_refused(tree: Tree) -> None:
    for text in (EMPTY_CHANGELOG, f"# Changelog\n\n{OLDER}"):
        tree.write("CHANGELOG.md", text)
        _assert_refused(tree, 'no entries under "Unreleased"')


def test_a_tag_that_exists_is_refused(tree: Tree) -> None:
    tree.git("tag", f"v{NEXT}")
    _assert_refused(tree, f"the tag v{NEXT} exists")


def test_a_file_without_the_version_is_refused(tree: Tree) -> None:
    tree.write("docs/guides/monitoring.md", "")
    _assert_refused(tree, "docs/guides/monitoring.md")


def test_another_directory_is_refused(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _assert_refused(tree, "not the top of KafScale's tree")


def test_a_step_that_fails_leaves_no_tag_and_names_the_undo(tree: Tree) -> None:
    tree.write("Makefile", "generate:\n\t@false\n")
    start = tree.git("rev-parse", "HEAD")
    done = tree.release(NEXT)
    assert done.exit_code == 1
    assert tree.git("tag") == ""
    [undo] = [line for line in done.stderr.splitlines() if "git reset" in line]
    tree.git(*undo.partition(": git ")[2].split())
    assert tree.state() == (start, "", "")


def test_the_unreleased_section_becomes_the_release_s() -> None:
    texts = {path: (ROOT / path).read_text() for path in PLACES}
    changed = edited({**texts, "CHANGELOG.md": CHANGELOG}, PRESENT, NEXT, date(2027, 3, 9))
    section = f"## Unreleased\n\n## {NEXT} - 2027-03-09\n\n### Added\n\n- New.\n\n{OLDER}"
    assert changed["CHANGELOG.md"] == f"# Changelog\n\n{section}"
