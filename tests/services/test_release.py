"""A release of the current tree, and its wheel installed in an environment without the tree."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafscale_tools.release.edits import PLACES, PYPROJECT, present_version
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.servers.tools import tool
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.installed import installed_programs
from tests.support.repositories import SETTINGS, commit_all, git

ROOT = Path(__file__).parents[2]
PRESENT = present_version((ROOT / PYPROJECT).read_text())
NEXT = f"{int(PRESENT.split('.')[0]) + 1}.0.0"


@dataclass(frozen=True)
class Released:
    tree: Path
    docker_calls: list[str]
    output: str


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """Run ``make release`` in a copy of the tree, with a Docker engine that does nothing."""
    directory = tmp_path_factory.mktemp("release")
    tree, programs, calls = directory / "tree", directory / "programs", directory / "docker-calls"
    _copy_tree(tree)
    programs.mkdir()
    (programs / "docker").write_text(f'#!/bin/sh\necho "$*" >> {calls}\n')
    (programs / "docker").chmod(0o755)
    # The packages of this environment need not be installed again.
    command = ["make", f"--old-file={sys.prefix}/.dev", "release", f"VENV={sys.prefix}", f"VERSION={NEXT}"]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = {**_environ(), **SETTINGS, "PATH": path}
    done = subprocess.run(command, cwd=tree, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Released(tree, calls.read_text().splitlines(), done.stdout)


def _copy_tree(into: Path) -> None:
    """Copy all files that are committed or could be."""
    tool("git", "git")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)
    changelog = into / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("\n## Unreleased\n", "\n## Unreleased\n\n- An entry.\n", 1))
    commit_all(into)


def _environ() -> dict[str, str]:
    """Return this machine's environment without settings of KafScale and make and without paths of this tree."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KAFSCALE_", "AWS_", "MAKE", "MFLAGS", "PYTHONPATH"))
    }


def test_a_release_commits_and_tags_and_leaves_no_other_change(released: Released) -> None:
    assert git(released.tree, "describe", "--exact-match") == f"v{NEXT}"
    assert git(released.tree, "status", "--porcelain") == ""
    assert f"KafScale {NEXT} is committed and tagged" in released.output


def test_no_file_of_a_release_names_the_previous_version(released: Released) -> None:
    """Documents may, in the changelog and in samples of output, but not as the tag of an image."""
    number = re.escape(PRESENT)
    in_settings, in_documents = rf"(?<![\w.]){number}(?![\w.])", rf"(kafscale:|/v){number}(?![\w.])"
    kinds = {".toml": in_settings, ".yaml": in_settings, ".env": in_settings, ".md": in_documents}
    names = [name for name in git(released.tree, "ls-files").splitlines() if not name.startswith("tests/")]
    searched = {name: pattern for name in names for kind, pattern in kinds.items() if name.endswith(kind)}
    assert searched.keys() >= PLACES.keys()
    assert [name for name, each in searched.items() if re.search(each, (released.tree / name).read_text())] == []


def test_the_image_is_tagged_with_the_version(released: Released) -> None:
    [build] = [call for call in released.docker_calls if call.startswith("build ")]
    assert f"--tag kafscale:{NEXT} " in build


def test_the_installed_wheel_stores_and_returns_a_record(released: Released, tmp_path: Path) -> None:
    programs = installed_programs(released.tree / "dist" / f"kafscale-{NEXT}-py3-none-any.whl", tmp_path / "venv")
    empty = tmp_path / "empty"
    empty.mkdir()
    kafka, rpc, http, console = (f"127.0.0.1:{port}" for port in free_ports(4))
    addresses = {"KAFSCALE_BROKER_ADDR": kafka, "KAFSCALE_RPC_ADDR": rpc, "KAFSCALE_HTTP_ADDR": http}
    addresses["KAFSCALE_CONSOLE_ADDR"] = console
    environ = {**_environ(), "KAFSCALE_ADMIN_SERVER": rpc}

    def kafscale(*arguments: str) -> str:
        command = [str(programs / "kafscale"), *arguments]
        return subprocess.run(
            command, cwd=empty, env=environ, check=True, stdout=subprocess.PIPE, text=True, timeout=60
        ).stdout

    assert kafscale("--version").split()[-1] == NEXT
    run = [str(programs / "kafscale"), "run"]
    with ServerProcess(run, log=tmp_path / "log", env={**addresses, "PYTHONPATH": ""}, directory=empty) as process:
        process.wait_for(lambda line: True if "serving" in line else None, timeout=60)
        kafscale("topic", "create", "greetings")
        assert ConfluentClient(kafka).produce("greetings", [Message(b"hello")]) == [0]
        assert kafscale("consume", "greetings") == "hello\n"
        assert b"KafScale" in urllib.request.urlopen(f"http://{console}/", timeout=60).read()
        assert process.stop(timeout=60) == 0
    assert [path.name for path in empty.iterdir()] == ["kafscale-data"]
