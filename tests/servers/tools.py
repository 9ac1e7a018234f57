"""Programs that tests need and that neither the Python environment nor the cache of test servers brings.

Where one is missing, the tests that need it are skipped, and ``make servers`` leaves its part out. Both name the Debian
package. With ``CI=true`` a missing program is an error.
"""

import os
import shutil

from _pytest.outcomes import Skipped


class ToolMissing(Skipped):
    """A program is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(message, allow_module_level=True)


def tool(command: str, package: str) -> str:
    """The path of a program. Raises ToolMissing, with ``CI=true`` RuntimeError."""
    found = shutil.which(command)
    if found is None:
        raise missing(command, package)
    return found


def missing(what: str, package: str) -> ToolMissing | RuntimeError:
    """The error that says which Debian packages bring what is missing."""
    message = f"{what} is missing: on Debian, apt-get install {package}"
    return RuntimeError(message) if os.environ.get("CI") == "true" else ToolMissing(message)
