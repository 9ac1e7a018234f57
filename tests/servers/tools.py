"""Programs that tests need and that are in neither the Python environment nor the cache of test servers.

If one is missing, the tests that need it are skipped, and so is its part of ``make servers``. Both name the Debian
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
    """Return the path of a program. If it is missing, raise ToolMissing, or RuntimeError with ``CI=true``."""
    found = shutil.which(command)
    if found is None:
        raise missing(command, package)
    return found


def missing(what: str, package: str) -> ToolMissing | RuntimeError:
    """Return the error that names the Debian packages to install."""
    message = f"{what} is missing: on Debian, apt-get install {package}"
    return RuntimeError(message) if os.environ.get("CI") == "true" else ToolMissing(message)
