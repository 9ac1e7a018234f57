"""Git repositories for tests. They do not read the settings of this machine."""

import os
import subprocess
from pathlib import Path

SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "A Tester" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "tester@example.com" for role in ("AUTHOR", "COMMITTER")},
}
"""The environment variables with which git works there."""


def git(directory: Path, *arguments: str) -> str:
    """What it prints."""
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **SETTINGS}, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.rstrip("\n")


def commit_all(directory: Path) -> None:
    """Makes ``directory`` a repository, if it is none, with all that is there in a commit."""
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "Commit all")
