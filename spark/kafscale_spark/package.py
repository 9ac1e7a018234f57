"""``python -m kafscale_spark.package FILE.zip`` writes a zip for ``spark-submit --py-files``.

It has this package and the part of ``kafscale`` that it imports. Their dependencies (numba, numpy, pyarrow, grpcio,
protobuf, crc32c, cramjam; minio for audits) contain or require compiled code, which cannot be imported from a zip, so
they must be installed where the executors run.
"""

import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import kafscale
import kafscale_spark

SHIPPED = ("__init__", "catalog", "errors", "malloc", "paths", "kafka", "records", "segment", "topics", "v1")
"""The modules and packages of ``kafscale`` that do no IO."""

_DATE = (1980, 1, 1, 0, 0, 0)


def write_package(target: Path) -> None:
    """Write the zip. The same tree results in the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _modules():
            archive.writestr(zipfile.ZipInfo(name, _DATE), source.read_bytes(), zipfile.ZIP_DEFLATED)


def _modules() -> Iterator[tuple[str, Path]]:
    for package in (kafscale, kafscale_spark):
        root = Path(package.__path__[0])
        for source in sorted(root.rglob("*.py")):
            within = source.relative_to(root)
            if package is kafscale_spark or within.parts[0].removesuffix(".py") in SHIPPED:
                yield f"{root.name}/{within.as_posix()}", source


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not arguments[0].endswith(".zip"):
        print(__doc__, file=sys.stderr)
        return 2
    write_package(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
