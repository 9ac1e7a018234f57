"""Git repositories for tests, which ignore the git settings of this machine."""

import os
import subprocess
from pathlib import Path

SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "A Tester" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "tester@example.com" for role in ("AUTHOR", "COMMITTER")},
}
"""Environment variables for git in these repositories."""


def git(directory: Path, *arguments: str) -> str:
    """Run git and return its output."""
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **SETTINGS}, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.rstrip("\n")


def commit_all(directory: Path) -> None:
    """Commit everything in ``directory``. Create a repository if there is none."""
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "Commit all")
