"""KafScale's wheel in an environment of its own, with the packages that the wheel names and no others."""

import subprocess
import sys
from pathlib import Path

from tests.servers.virtualenv import kept_wheels

_LOCK = Path(__file__).parents[2] / "requirements.lock"


def requirements() -> Path:
    """Wheels of what KafScale may ask for, in the versions of requirements.lock."""
    return kept_wheels("requirements", _LOCK, "KafScale's requirements")


def installed_programs(wheel: Path, directory: Path) -> Path:
    """The ``bin`` of a new environment in ``directory`` with ``wheel``. Nothing comes from a network."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    programs = directory / "bin"
    # Without the settings for pip of this machine, which may name other directories.
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", f"{programs}/python")
    install = ("install", "--quiet", "--no-index", "--find-links", str(requirements()), str(wheel))
    subprocess.run([*pip, *install], check=True)
    return programs
