"""What a release changes in the tree's files: the version, and the changelog's section for it."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date

CHANGELOG = "CHANGELOG.md"
PYPROJECT = "pyproject.toml"

_IMAGE = "  - name: kafscale\n    newTag: {}\n"
PLACES = {
    PYPROJECT: '\nversion = "{}"\n',
    "k8s/base/kustomization.yaml": _IMAGE,
    "k8s/components/etcd-restore/kustomization.yaml": _IMAGE,
    "k8s/components/minio/kustomization.yaml": _IMAGE,
    "k8s/operator/kustomization.yaml": _IMAGE,
    "docs/guides/monitoring.md": "/blob/v{}/",
}
"""The files that name the version of the release, and the text around it. Versions elsewhere are samples."""

_UNRELEASED = "\n## Unreleased\n"


class Refused(Exception):
    """The release cannot be made. The message says why."""


def present_version(pyproject: str) -> str:
    """The version of the tree, from the text of pyproject.toml."""
    return str(tomllib.loads(pyproject)["project"]["version"])


def check_version(new: str, present: str) -> None:
    """Raises `Refused` unless ``new`` is X.Y.Z and higher than ``present``."""
    if _numbers(new) <= _numbers(present):
        raise Refused(f"version {new} is not higher than the present version {present}: set VERSION to a higher one")


def edited(texts: Mapping[str, str], present: str, new: str, day: date) -> dict[str, str]:
    """The texts of the files in `PLACES` and of the changelog, as the release has them."""
    changed = {path: _with_version(path, texts[path], present, new) for path in PLACES}
    changed[CHANGELOG] = _with_section(texts[CHANGELOG], new, day)
    return changed


def _numbers(version: str) -> tuple[int, ...]:
    number = "(0|[1-9][0-9]*)"
    found = re.fullmatch(rf"{number}\.{number}\.{number}", version, re.ASCII)
    if found is None:
        raise Refused(f"version {version!r} is not of the form X.Y.Z, such as 1.4.0")
    return tuple(map(int, found.groups()))


def _with_version(path: str, text: str, present: str, new: str) -> str:
    pattern = PLACES[path]
    if (count := text.count(pattern.format(present))) != 1:
        shown = pattern.format(present).strip()
        raise Refused(f"{path} has {count} times, and not once: {shown!r}")
    return text.replace(pattern.format(present), pattern.format(new))


def _with_section(changelog: str, new: str, day: date) -> str:
    """What is under "Unreleased" goes into the release's section, and "Unreleased" is empty again."""
    before, heading, after = changelog.partition(_UNRELEASED)
    entries = after.partition("\n## ")[0]
    if not heading or not re.search(r"^- ", entries, re.MULTILINE):
        raise Refused(f'{CHANGELOG} has no entries under "Unreleased"')
    return f"{before}{_UNRELEASED}\n## {new} - {day.isoformat()}\n{after}"
