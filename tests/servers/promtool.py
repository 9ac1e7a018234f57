"""Prometheus' promtool: the installed one, or else the one in Debian's package.

The package is extracted, not installed, because installing it would start a server.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.java import cache_root
from tests.servers.tools import missing


def promtool() -> Path:
    """Return the executable. If none is installed, it is extracted into the cache once."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    cached = cache_root() / "promtool"
    if not cached.exists():
        _extract(cached)
    return cached


def _extract(target: Path) -> None:
    if shutil.which("apt-get") is None:
        raise missing("promtool", "prometheus")
    print(f"extracting promtool from Debian's package into {target} ...", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="promtool-") as scratch:
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "-qq", "update"], check=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=scratch, check=True)
        [package] = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, scratch], check=True)
        (Path(scratch) / "usr" / "bin" / "promtool").rename(target)
