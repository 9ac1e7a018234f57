"""Keeps Spark's Python workers from reading the directories of zips anew for each task and each plan.

Spark 4.0 asks for that each time, and Python up to 3.12 then does it at once, for every package in a zip: a quarter of
a second for Spark's own (github.com/python/cpython/issues/103200).
"""

import os
import sys
from contextlib import suppress
from zipimport import ZipImportError, zipimporter

from kafscale_spark.workers import in_worker


class KeptZip(zipimporter):
    """The importer of a zip, or of a directory in it, which reads what is there only when the file is another one."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # What Python remembers of the zip may be older than the file.
        self._read_of: tuple[int, int, int] | None = None

    def invalidate_caches(self) -> None:
        """Let the next import see what is in the file now."""
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
    """Let the importers of all zips in this process be such ones, now and later."""
    sys.path_hooks[:] = [KeptZip if hook is zipimporter else hook for hook in sys.path_hooks]
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            with suppress(ZipImportError):
                sys.path_importer_cache[path] = KeptZip(path)


def keep_directories_in_workers() -> None:
    """The same in a Python worker of Spark, and nothing in other processes."""
    if sys.version_info < (3, 13) and in_worker():
        keep_directories()
