"""`make audit` reports success only if the advisory database has answered for every lock file."""

import re
import subprocess
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[3] / ".ci" / "audit"
SOUND = "echo 'No known vulnerabilities found' >&2"
VULNERABLE = "echo 'urllib3 1.0 CVE-1'; echo 'Found 1 known vulnerability in 1 package' >&2; exit 1"


def _audit(directory: Path, first: str, second: str) -> subprocess.CompletedProcess[str]:
    """Audit two lock files with a program that does ``first`` and ``second``."""
    program = directory / "pip-audit"
    program.write_text(f'#!/bin/sh\ncase "$*" in\n*first.lock) {first} ;;\n*second.lock) {second} ;;\nesac\n')
    program.chmod(0o755)
    command = [str(AUDIT), str(program), "first.lock", "second.lock"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("first", "second", "status", "said"),
    [
        (SOUND, SOUND, 0, "second.lock: no known vulnerabilities"),
        (VULNERABLE, SOUND, 1, "first.lock: Found 1 known vulnerability"),
        (SOUND, "echo 'ConnectionError: no route' >&2; exit 1", 2, "second.lock is not audited: .*\nConnectionError"),
        (SOUND, "exit 0", 2, "second.lock is not audited"),
        (VULNERABLE, "exit 3", 2, r"second.lock is not audited: .*\(status 3\)"),
    ],
)
def test_an_audit_without_a_result_fails(tmp_path: Path, first: str, second: str, status: int, said: str) -> None:
    done = _audit(tmp_path, first, second)
    assert done.returncode == status
    assert re.search(said, done.stdout + done.stderr)
