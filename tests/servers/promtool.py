"""Prometheus' promtool: the machine's own, else that of Debian's package.

The package is not installed, since it would start a server.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.java import cache_root
from tests.servers.tools import missing


def promtool() -> Path:
    """The executable, which is in the cache from the first time on where the machine has none."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    kept = cache_root() / "promtool"
    if not kept.exists():
        _take(kept)
    return kept


def _take(kept: Path) -> None:
    if shutil.which("apt-get") is None:
        raise missing("promtool", "prometheus")
    print(f"taking promtool out of Debian's package into {kept} ...", flush=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="promtool-") as scratch:
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "-qq", "update"], check=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=scratch, check=True)
        [package] = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, scratch], check=True)
        (Path(scratch) / "usr" / "bin" / "promtool").rename(kept)
