"""Keeps Spark's Python workers from reading the directories of zips again for each task and each plan.

Spark 4.0 invalidates import caches each time, and Python up to 3.12 then rereads the zip at once for every package in
it: a quarter of a second for Spark's own (github.com/python/cpython/issues/103200).
"""

import os
import sys
from contextlib import suppress
from zipimport import ZipImportError, zipimporter

from kafscale_spark.workers import in_worker


class KeptZip(zipimporter):
    """An importer of a zip, or of a directory in it, that reads the zip's directory only if the file has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # Python's cached directory of the zip may be older than the file.
        self._read_of: tuple[int, int, int] | None = None

    def invalidate_caches(self) -> None:
        """Let the next import see the current content of the file."""
        file = self._file()
        if file is None or file != self._read_of:
            super().invalidate_caches()
            self._read_of = file

    def _file(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.archive)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def keep_directories() -> None:
    """Use `KeptZip` for all present and future zips of this process."""
    sys.path_hooks[:] = [KeptZip if hook is zipimporter else hook for hook in sys.path_hooks]
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            with suppress(ZipImportError):
                sys.path_importer_cache[path] = KeptZip(path)


def keep_directories_in_workers() -> None:
    """Call `keep_directories` in a Python worker of Spark; do nothing in other processes."""
    if sys.version_info < (3, 13) and in_worker():
        keep_directories()
