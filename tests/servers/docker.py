"""A container engine for tests: the running one, or else a Docker engine that the tests start.

`build` makes what `running_engine` needs: KafScale's images and, for an engine that the tests start, Compose from its
Go module, a Debian image made with debootstrap, and on top of it the images that compose.yaml names. A running engine
pulls those from its registries.
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import etcd, minio
from tests.servers.go_build import GoServer
from tests.servers.java import cache_root
from tests.servers.tools import tool

ROOT = Path(__file__).parents[2]
COMPOSE = GoServer(
    "docker-compose", Path(__file__).parent / "compose", "github.com/docker/compose/v2/cmd", "a minute and a half"
)
BASE = "debian:bookworm-slim"
IMAGE = "kafscale:latest"
SPARK_IMAGE = "kafscale-spark:latest"
KCAT = "edenhill/kcat:1.7.1"
_IMAGES = Path(__file__).parent / "images"
_BUILT = {"haproxy": None, "etcd": etcd.SERVER, "minio": minio.SERVER, "prometheus": None}
"""The images of compose.yaml that are built here, by the last part of their names, with the server in each."""
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    """A running engine. ``own``: the tests started it. ``environ``: the environment of the `docker` command."""

    own: bool
    environ: Mapping[str, str]

    def run(self, *arguments: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `docker ARGUMENTS` in the root of the tree. Raise RuntimeError with its output if it fails."""
        return self._run("docker", *arguments, check=check, **environ)

    def make(self, target: str) -> None:
        """Run `make TARGET` with this engine."""
        self._run("make", "--no-print-directory", target, check=True)

    def _run(self, *command: str, check: bool, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed with status {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def image_id(self, image: str) -> str:
        """Return the id of an image, or an empty string if there is no such image."""
        return self.run("image", "inspect", "--format", "{{.Id}}", image, check=False).stdout.strip()


@contextmanager
def running_engine() -> Iterator[Engine]:
    """Return the running engine, or start one that stops on exit and keeps its images in the cache."""
    running = Engine(own=False, environ=_with_compose(os.environ))
    if running.run("version", check=False).returncode == 0:
        yield running
        return
    root = cache_root() / "docker"
    root.mkdir(parents=True, exist_ok=True)
    with (
        (root.parent / "docker.lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="kafscale-docker-") as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Debian's `docker build` has no BuildKit. Compose must not use it either, to find what `make image` has cached.
        own = {"DOCKER_HOST": f"unix://{scratch}/socket", "DOCKER_BUILDKIT": "0"}
        # This engine publishes ports on loopback, which testcontainers does not expect if it detects that it runs in a
        # container. The engine has no image of Ryuk.
        own |= {"TESTCONTAINERS_CONNECTION_MODE": "docker_host", "TESTCONTAINERS_RYUK_DISABLED": "true"}
        engine = Engine(own=True, environ=_with_compose({**os.environ, **own}))
        with _daemon(engine, root, Path(scratch)):
            yield engine


@contextmanager
def _daemon(engine: Engine, root: Path, scratch: Path) -> Iterator[None]:
    command = ["dockerd", "--host", engine.environ["DOCKER_HOST"], "--data-root", str(root)]
    command += ["--exec-root", str(scratch / "exec"), "--pidfile", str(scratch / "pid")]
    command += ["--ip", "127.0.0.1"]
    log = scratch / "dockerd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while engine.run("version", check=False).returncode != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        # dockerd stops the remaining containers and its containerd.
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _with_compose(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with what `docker compose` needs to work."""
    plugins = cache_root() / "docker-config" / "cli-plugins"
    if subprocess.run(["docker", "compose", "version"], env=environ, capture_output=True, check=False).returncode == 0:
        return dict(environ)
    plugins.mkdir(parents=True, exist_ok=True)
    built, plugin = COMPOSE.build(), plugins / "docker-compose"
    if not plugin.exists() or plugin.resolve() != built:
        plugin.unlink(missing_ok=True)
        plugin.symlink_to(built)
    return {**environ, "DOCKER_CONFIG": str(plugins.parent)}


def build() -> None:
    """Build all images. Unchanged images are kept."""
    version = Engine(own=False, environ=os.environ).run("version", check=False) if shutil.which("docker") else None
    for command in () if version and version.returncode == 0 else ("docker", "dockerd", "debootstrap"):
        tool(command, "docker.io debootstrap")
    with running_engine() as engine:
        if engine.own:
            _make_base(engine)
            _make_servers(engine)
        before = {image: engine.image_id(image) for image in (IMAGE, SPARK_IMAGE)}
        print("building KafScale's image ...", flush=True)
        engine.make("image")
        print("building the image of KafScale with Spark (some minutes the first time) ...", flush=True)
        engine.run("compose", "--profile", "spark", "build", "spark-demo", IMAGE_TAG="latest")
        for image, old in before.items():
            if engine.own and old not in ("", engine.image_id(image)):
                # An old image takes as much space as everything installed in it.
                engine.run("image", "rm", old, check=False)


def _make_base(engine: Engine) -> None:
    if engine.image_id(BASE):
        return
    print(f"making a Debian image with debootstrap ({BASE}, half a minute) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="kafscale-debian-") as scratch:
        root = Path(scratch) / "root"
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True, stdout=subprocess.DEVNULL)
        # Trust the same CAs as this machine, for example behind a proxy with its own certificate.
        if _CERTIFICATES.exists():
            shutil.copytree(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"), dirs_exist_ok=True)
        archive = Path(scratch) / "root.tar"
        subprocess.run(["tar", "--create", "--file", archive, "--directory", root, "."], check=True)
        engine.run("import", "--change", "CMD bash", str(archive), BASE)


def named_images() -> dict[str, str]:
    """Return the images of compose.yaml that are built here, and kcat, by the names of their programs."""
    images = re.findall(r"^    image: (\S+)$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    by_program = {image.rpartition("/")[2].partition(":")[0]: image for image in images}
    return {**{program: by_program[program] for program in _BUILT}, "kcat": KCAT}


def _make_servers(engine: Engine) -> None:
    programs = {name: server.build() for name, server in _BUILT.items() if server is not None}
    made_of = [(_IMAGES / "Dockerfile").read_text(), *map(str, programs.values())]
    label = f"kafscale.test={hashlib.sha256('|'.join(made_of).encode()).hexdigest()[:16]}"
    images = named_images()
    existing = engine.run("images", "--filter", f"label={label}", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
    if set(images.values()) <= set(existing):
        return
    print(f"building images of {', '.join(images)} (a minute) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="kafscale-images-") as scratch:
        shutil.copy(_IMAGES / "Dockerfile", scratch)
        for name, program in programs.items():
            shutil.copy(program, Path(scratch) / name)
        for name, image in images.items():
            engine.run("build", "--quiet", "--label", label, "--target", name, "--tag", image, scratch)
