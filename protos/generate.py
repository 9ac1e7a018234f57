"""Generates kafscale/v1/*_pb2.py and .pyi from protos/; ``--check`` compares instead and exits 1 on a difference."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).parent
ROOT = PROTOS.parent


def generate(into: Path) -> None:
    """Writes the modules below ``into``, at their import paths. Raises ``SystemExit`` when protoc refuses."""
    sources = [str(path) for path in sorted(PROTOS.rglob("*.proto"))]
    if protoc.main(["protoc", f"-I{PROTOS}", f"--python_out={into}", f"--pyi_out={into}", *sources]) != 0:
        raise SystemExit("protoc refused: its messages stand above")


def outdated() -> list[str]:
    """The generated files that differ from what protos/ say, relative to the root."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = {path.relative_to(scratch): path.read_bytes() for path in Path(scratch).rglob("*_pb2.py*")}
    kept = {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / "kafscale").rglob("*_pb2.py*")}
    return sorted(str(name) for name in fresh.keys() | kept.keys() if fresh.get(name) != kept.get(name))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        different = outdated()
        if different:
            raise SystemExit("not what protos/ say (make generate): " + ", ".join(different))
    else:
        generate(ROOT)
