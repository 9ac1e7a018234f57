"""The files that browsers load. All pages are one document, whose script shows what the address names."""

from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from kafscale.process.http import Response, text

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SECURITY_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""On every response: scripts, styles and connections only of the console itself, and no frame around it."""
_PREFIX = "/static/"
_DOCUMENT = "index.html"


class Pages:
    """The files of ``services/console/static``, read once."""

    def __init__(self) -> None:
        self._files: Mapping[str, bytes] = dict(_contents(files("services.console") / "static", ""))

    def find(self, path: str) -> Response:
        """Return the file at ``/static/...``, and for every other path the document."""
        name = path.removeprefix(_PREFIX) if path.startswith(_PREFIX) else _DOCUMENT
        content = self._files.get(name)
        if content is None:
            return text(HTTPStatus.NOT_FOUND, "not found")
        return Response(content, _TYPES[name[name.rindex(".") :]])


def _contents(directory: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in directory.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            found += _contents(entry, f"{name}/")
        elif any(name.endswith(ending) for ending in _TYPES):
            found.append((name, entry.read_bytes()))
    return found
