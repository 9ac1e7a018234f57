"""Which release of KafScale this is."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def kafscale_version() -> str:
    """The version of the installed package; empty: it runs from a tree that was not installed."""
    try:
        return version("kafscale")
    except PackageNotFoundError:
        return ""
