"""KafScale's wheel in a new environment with only the packages that it requires."""

import subprocess
import sys
from pathlib import Path

from tests.servers.virtualenv import kept_wheels

_LOCK = Path(__file__).parents[2] / "requirements.lock"


def requirements() -> Path:
    """Return a directory with wheels of KafScale's requirements, in the versions of requirements.lock."""
    return kept_wheels("requirements", _LOCK, "KafScale's requirements")


def installed_programs(wheel: Path, directory: Path) -> Path:
    """Install ``wheel`` offline into a new environment in ``directory``, and return its ``bin``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    programs = directory / "bin"
    # Isolated, because pip settings of this machine may name other directories.
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", f"{programs}/python")
    install = ("install", "--quiet", "--no-index", "--find-links", str(requirements()), str(wheel))
    subprocess.run([*pip, *install], check=True)
    return programs
