"""KafScale's wheel in a virtual environment with only the packages that the wheel requires."""

import subprocess
import sys
from pathlib import Path

from tests.servers.virtualenv import kept_wheels

_LOCK = Path(__file__).parents[2] / "requirements.lock"


def requirements() -> Path:
    """Return wheels of the packages that KafScale may require, in the versions of requirements.lock."""
    return kept_wheels("requirements", _LOCK, "KafScale's requirements")


def installed_programs(wheel: Path, directory: Path) -> Path:
    """Return the ``bin`` of a new environment in ``directory`` with ``wheel``. Nothing is downloaded."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    programs = directory / "bin"
    # This machine's settings for pip may name other directories, so they are ignored.
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", f"{programs}/python")
    install = ("install", "--quiet", "--no-index", "--find-links", str(requirements()), str(wheel))
    subprocess.run([*pip, *install], check=True)
    return programs
