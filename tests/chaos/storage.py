"""``python -m tests.chaos.storage``: a storage instance that tries failed rewrites again after a second, not a minute.

Otherwise few rewrites would be under way when the next fault comes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kafscale.process.process import run_process
from kafscale.process.startup import check_shared
from services.storage import __main__ as storage

COMMAND = [sys.executable, "-m", "tests.chaos.storage"]
_PAUSE_SECONDS = 1.0


@contextmanager
def soon_again() -> Iterator[None]:
    """Shorten the pause after a failed rewrite."""
    with patch("services.storage.rewriting.rewrites._PAUSE_AFTER_FAILURE", _PAUSE_SECONDS):
        yield


def run_storage() -> int:
    """Run an instance until it is stopped, and return the exit status of the process."""
    return run_process(
        storage.SETTINGS, storage.serve, service="storage", check=check_shared, grace_ms=storage.grace_ms
    )


if __name__ == "__main__":
    with soon_again():
        sys.exit(run_storage())
