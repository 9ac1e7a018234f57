"""Builds the Java side of the tests with Maven into a cache outside the tree.

Each build is kept under a name that is the hash of its sources, so that a changed pom or source is built again and a
warm call only looks.
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
    """Where test servers and jars are kept between runs; ``KAFSCALE_TEST_CACHE`` moves it."""
    return Path(os.environ.get("KAFSCALE_TEST_CACHE") or Path.home() / ".cache" / "kafscale")


def classpath(project: str) -> str:
    """The class path of a project, built first when the cache lacks it. Raises ToolMissing without Java or Maven."""
    tool("java", "maven")
    return f"{build(project)}/*"


def build(project: str) -> Path:
    """The directory that holds the project's jars."""
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
            raise SystemExit(f"Maven could not build tests/java/{project}: its messages stand above")
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
