"""``python -m kafscale_tools.release X.Y.Z`` at the top of the tree. Run it by ``make release VERSION=X.Y.Z``."""

import difflib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from kafscale_tools.release.edits import CHANGELOG, PLACES, PYPROJECT, Refused, check_version, edited, present_version

_BUILD = """
import sys
from setuptools import build_meta
directory = sys.argv[1]
# Both change sys.argv.
build_meta.build_sdist(directory)
build_meta.build_wheel(directory)
"""
_REFUSED = 2


@dataclass(frozen=True)
class _Step:
    title: str
    take: Callable[[], None]


class _Release:
    """The steps of a release in the tree ``root``. Raises `Refused` if it cannot be made; nothing is written then."""

    def __init__(self, root: Path, version: str) -> None:
        self._root = root
        self._version = version
        self._tag = f"v{version}"
        self._image_built = False
        self._before = _texts(root)
        present = present_version(self._before[PYPROJECT])
        check_version(version, present)
        self._check_repository()
        self._after = edited(self._before, present, version, datetime.now(UTC).date())
        self._start = self._git("rev-parse", "HEAD")

    def show(self) -> None:
        """Prints what the release would change."""
        for path, text in self._after.items():
            before = self._before[path].splitlines()
            for line in difflib.unified_diff(before, text.splitlines(), path, path, lineterm="", n=1):
                click.echo(line)
        for step in self._steps():
            click.echo(f"would {step.title}")

    def make(self) -> bool:
        """Takes the steps. False if one failed."""
        for step in self._steps():
            click.echo(f"{step.title} ...")
            try:
                step.take()
            except (subprocess.CalledProcessError, OSError) as error:
                click.echo(f"Error: the release failed, nothing is tagged: {error}", err=True)
                click.echo(f"To undo its changes: git reset --hard {self._start}", err=True)
                return False
        self._say_what_is_left()
        return True

    def _steps(self) -> tuple[_Step, ...]:
        return (
            _Step(f"write version {self._version} into {len(self._after)} files", self._write),
            _Step("generate code and documents", self._generate),
            _Step(f'commit "Release {self._version}"', self._commit),
            _Step("build the wheel and the source distribution in dist/", self._build),
            _Step(f"build the image kafscale:{self._version}", self._build_image),
            _Step(f"tag the commit {self._tag}", self._set_tag),
        )

    def _check_repository(self) -> None:
        try:
            changes = self._git("status", "--porcelain")
            tags = self._git("tag", "--list", self._tag)
        except subprocess.CalledProcessError as error:
            raise Refused(f"git cannot read this tree: {error}") from None
        if changes:
            raise Refused(f"the work tree has changes that are not committed:\n{changes}")
        if tags:
            raise Refused(f"the tag {self._tag} exists")

    def _write(self) -> None:
        for path, text in self._after.items():
            (self._root / path).write_text(text)
            click.echo(f"  {path}")

    def _generate(self) -> None:
        # The environment is the one that runs this program. Its packages stay as they are, although pyproject.toml is
        # newer now.
        self._make(f"--old-file={sys.prefix}/.dev", "generate", f"VENV={sys.prefix}")

    def _commit(self) -> None:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", f"Release {self._version}")

    def _build(self) -> None:
        """Builds from a clone of the commit: setuptools also packs what earlier builds left in build/."""
        dist = self._root / "dist"
        dist.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            clone = Path(scratch) / "kafscale"
            self._git("clone", "--quiet", str(self._root), str(clone))
            built = clone / "dist"
            done = _run([sys.executable, "-c", _BUILD, str(built)], clone)
            if done.returncode != 0:
                click.echo(done.stdout, err=True)
                done.check_returncode()
            for path in sorted(built.iterdir()):
                shutil.copy(path, dist)
                click.echo(f"  dist/{path.name}")

    def _build_image(self) -> None:
        if not _docker_answers():
            click.echo("  left out: no Docker engine answers")
            return
        self._make("image")
        self._image_built = True

    def _set_tag(self) -> None:
        self._git("tag", "--annotate", "--message", f"KafScale {self._version}", self._tag)

    def _say_what_is_left(self) -> None:
        image = f"kafscale:{self._version}"
        click.echo(f"\nKafScale {self._version} is committed and tagged. What is left to do:")
        click.echo(f"  git push origin HEAD {self._tag}")
        if not self._image_built:
            click.echo(f"  make image (at {self._tag}, with a Docker engine)")
        click.echo(f"  docker tag {image} REGISTRY/{image} && docker push REGISTRY/{image}")
        click.echo(f"  publish the packages dist/kafscale-{self._version}*")

    def _make(self, *arguments: str) -> None:
        subprocess.run(["make", "--no-print-directory", *arguments], cwd=self._root, check=True)  # noqa: S603, S607

    def _git(self, *arguments: str) -> str:
        """Its output; what it says of an error goes to standard error."""
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self._root, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        return done.stdout.rstrip()


def _texts(root: Path) -> dict[str, str]:
    try:
        return {path: (root / path).read_text() for path in (*PLACES, CHANGELOG)}
    except FileNotFoundError as error:
        raise Refused(f"this is not the top of KafScale's tree: {error.filename} is missing") from None


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    return docker is not None and _run([docker, "version"], Path.cwd()).returncode == 0


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs it with its messages in ``stdout``."""
    return subprocess.run(  # noqa: S603
        command,
        cwd=directory,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@click.command()
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
def main(version: str, dry_run: bool) -> None:
    """Release VERSION: set it, commit, build the wheel and the image, and tag the commit.

    Exit status: 0 done, 1 a step failed, 2 the release was refused and nothing was written.
    """
    try:
        release = _Release(Path.cwd(), version)
    except Refused as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_REFUSED)
    if dry_run:
        release.show()
    elif not release.make():
        sys.exit(1)


if __name__ == "__main__":
    main()
