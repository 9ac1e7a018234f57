"""Build the Java programs of the tests with Maven, into a cache outside the tree.

The name of a build contains a hash of its sources, so a changed pom or source is built again.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.tools import tool

SOURCES = Path(__file__).parents[1] / "java"
PROJECTS = ("client", "apache", "messages", "messages_old", "spark_source")


def cache_root() -> Path:
    """Return the directory of test servers and jars; ``KAFSCALE_TEST_CACHE`` overrides it."""
    return Path(os.environ.get("KAFSCALE_TEST_CACHE") or Path.home() / ".cache" / "kafscale")


def classpath(project: str) -> str:
    """Return the class path of a project. Build it if needed. Raise ToolMissing without Java or Maven."""
    tool("java", "maven")
    return f"{build(project)}/*"


def build(project: str) -> Path:
    """Return the directory of the project's jars. Build them if they are not in the cache."""
    source = SOURCES / project
    built = cache_root() / f"java-{project}-{_fingerprint(source)}"
    if built.is_dir():
        return built
    maven = tool("mvn", "maven")
    print(f"building the Java project {project} with Maven into {built} ...", flush=True)
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent, prefix="maven-") as scratch:
        work = Path(scratch) / "work"
        shutil.copytree(source, work)
        done = subprocess.run(
            [maven, "-B", "-q", "-Dstyle.color=never", "package"], cwd=work, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"Maven could not build tests/java/{project}: see its messages above")
        jars = Path(scratch) / "jars"
        jars.mkdir()
        for jar in (work / "target").glob("*.jar"):
            shutil.move(jar, jars / jar.name)
        try:
            jars.rename(built)
        except OSError:
            if not built.is_dir():
                raise
    return built


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
