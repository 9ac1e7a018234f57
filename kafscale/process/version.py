"""The version of KafScale."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def kafscale_version() -> str:
    """Return the version of the installed package. Empty if KafScale runs from a source tree without installation."""
    try:
        return version("kafscale")
    except PackageNotFoundError:
        return ""
