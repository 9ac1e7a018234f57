"""Clients of other languages. The program of each is built once into the cache."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.servers.go_build import GoServer
from tests.servers.java import cache_root, classpath
from tests.servers.tools import tool
from tests.support.clients.interface import ROUND_ROBIN
from tests.support.clients.login import Login, in_json
from tests.support.clients.piped import ALL_ASSIGNORS, PipedClient

_MATRIX = Path(__file__).parents[2] / "matrix"
_KAFKAJS = _MATRIX / "kafkajs"
_KGO = GoServer("kgo", _MATRIX / "kgo", ".", "some seconds")


class KafkaJsClient(PipedClient):
    name = "kafkajs"
    version = str(json.loads((_KAFKAJS / "package.json").read_text())["dependencies"]["kafkajs"])
    idempotent = False
    # Its only assignor.
    assignors: Mapping[str, str] = {ROUND_ROBIN: "RoundRobinAssigner"}
    # KafScale compresses uncompressed batches with Snappy, which it reads only with a plug-in.
    topic_configs: Mapping[str, str] = {"compression.type": "producer"}

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__(["node", str(_node_modules() / "driver.js")], bootstrap, in_json(login))


class FranzGoClient(PipedClient):
    name = "franz-go"
    idempotent = True
    assignors = ALL_ASSIGNORS

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__([str(_KGO.build())], bootstrap, in_json(login))
        required = (line.split() for line in (_KGO.manifest / "go.mod").read_text().splitlines())
        self.version = next(words[1] for words in required if words[:1] == ["github.com/twmb/franz-go"])


def _node_modules() -> Path:
    """Return the directory with the driver and its modules. Install them if they are not in the cache."""
    sources = [_KAFKAJS / name for name in ("package.json", "package-lock.json", "driver.js")]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = cache_root() / f"kafkajs-{digest}"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "installed").exists():
            npm = tool("npm", "nodejs npm")
            print(f"installing KafkaJS into {built} ...", flush=True)
            for source in sources:
                shutil.copy(source, built)
            command = [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"]
            if subprocess.run(command, cwd=built, stdin=subprocess.DEVNULL, check=False).returncode != 0:
                raise SystemExit("npm could not install KafkaJS: see its messages above")
            (built / "installed").touch()
    return built


def build() -> None:
    """Build and install everything that is not in the cache."""
    classpath("client")
    _KGO.build()
    _node_modules()
