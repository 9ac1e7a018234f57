"""The tests of every pitfall and of other rules go red on naive code.

A copy of the tree is made naive, and the test is run there.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS, REQUIRED
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("kafscale", "services", "spark", "tests", "protos", "pyproject.toml")
TIMEOUT = 240.0
"""Seconds; less than pytest's own, since a test that hangs on naive code has not failed."""


def _id(mutation: Mutation) -> str:
    first_word = (mutation.new.split() or ["nothing"])[0]
    return f"{'-'.join(map(str, mutation.pitfalls)) or 'rule'}-{Path(mutation.path).stem}-{first_word}"


def _numbers(test: str) -> set[int]:
    """The pitfalls that a test's name bears."""
    named = re.search(r"::test_pitfalls?((?:_and|_\d+)+)_", test)
    return set(map(int, re.findall(r"\d+", named[1]))) if named else set()


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_required_pitfall_has_a_mutation() -> None:
    assert {number for mutation in MUTATIONS for number in mutation.pitfalls} == REQUIRED
    assert len(set(MUTATIONS)) == len(MUTATIONS)
    assert all(bool(mutation.pitfalls) != bool(mutation.rule) for mutation in MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_id)
def test_a_mutation_is_of_code_and_a_test_that_exist(mutation: Mutation) -> None:
    assert (ROOT / mutation.path).read_text().count(mutation.old) == 1
    assert mutation.path.startswith(("kafscale/", "services/", "spark/kafscale_spark/"))
    file, function = mutation.test.split("::")
    assert function in _functions(file)
    assert set(mutation.pitfalls) <= _numbers(mutation.test)


def test_a_mutation_is_code_whose_names_all_exist(tmp_path: Path) -> None:
    """A test that fails on a NameError shows nothing of its rule."""
    for number, mutation in enumerate(MUTATIONS):
        code = (ROOT / mutation.path).read_text().replace(mutation.old, mutation.new)
        (tmp_path / f"{number:03}-{Path(mutation.path).name}").write_text(code)
    rules = "F821,F822,F823,E9"
    found = _run(tmp_path, "-m", "ruff", "check", "--isolated", "--output-format=concise", "--select", rules, ".")
    assert found.returncode == 0, found.stdout


def _run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "spark")])},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )


def _pytest(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    return _run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree whose own code is what is imported there, and on which all named tests pass."""
    tree = tmp_path_factory.mktemp("copy")
    listing = subprocess.run(["git", "ls-files", "-z", *COPIED], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listing.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    packages = {"kafscale": "kafscale", "services": "services", "kafscale_spark": "spark/kafscale_spark"}
    code = f"import {', '.join(packages)}; print({', '.join(f'*{name}.__path__' for name in packages)}, sep='\\n')"
    where = _run(tree, "-c", code)
    assert where.stdout.splitlines() == [str(tree / path) for path in packages.values()]
    unchanged = _pytest(tree, *sorted({mutation.test for mutation in MUTATIONS}))
    assert unchanged.returncode == pytest.ExitCode.OK, unchanged.stdout
    return tree


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=_id)
def test_a_mutation_makes_its_test_fail(copy: Path, tmp_path: Path, mutation: Mutation) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(copy, tree)
    code = tree / mutation.path
    code.write_text(code.read_text().replace(mutation.old, mutation.new))
    mutated = _pytest(tree, mutation.test)
    assert mutated.returncode == pytest.ExitCode.TESTS_FAILED, mutated.stdout
    assert re.search(r"^1 failed\b(?!.*\berror)", mutated.stdout.splitlines()[-1]), mutated.stdout
