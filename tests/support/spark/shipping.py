"""Python environments of drivers and executors: only requirements, or also the project, installed from a wheel."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]
_BUILT_FROM = ("kafscale", "kafscale_tools", "services", "spark", "pyproject.toml", "README.md", "LICENSE")


def built_wheel(directory: Path) -> Path:
    """Build a wheel of the current tree in a copy, because setuptools leaves files where it builds."""
    for name in _BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, directory)
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (directory / "dist").glob("*.whl")
    return wheel


def python_with(directory: Path, *, wheel: Path | None = None) -> Path:
    """Return the interpreter of a new environment with this environment's requirements, and ``wheel``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    if wheel is not None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install")
        subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)
    # Python does not process .pth files in this directory, so an editable KafScale there is not on the path.
    (packages,) = directory.glob("lib/*/site-packages")
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
