"""Kafka's own serialization as the reference for messages.

``messages/`` uses the newest kafka-clients. ``messages_old/`` uses older ones, for API versions that Kafka 4 dropped.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from tests.servers.java import build, classpath

_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp")
_MAIN = "kafscale.messages.Judge"


@dataclass(frozen=True)
class Judged:
    """A frame as Kafka parses it. ``written``: Kafka's bytes for these values. ``left``: the number of unread bytes."""

    header: Mapping[str, Any]
    body: Mapping[str, Any]
    written: bytes
    left: int


class Judge:
    """The message classes of one Kafka release, in a JVM that answers line by line."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self._process = process
        self.apis: dict[int, tuple[str, range]] = {
            int(key): (api, range(low, high + 1)) for key, (api, low, high) in self._ask("ranges").items()
        }

    def knows(self, api_key: int, version: int) -> bool:
        return api_key in self.apis and version in self.apis[api_key][1]

    def request(self, api_key: int, version: int, frame: bytes) -> Judged:
        """Parse a complete request without its size field."""
        return self._judged(f"request {api_key} {version} {frame.hex()}")

    def response(self, api_key: int, version: int, frame: bytes) -> Judged:
        """Parse a complete response without its size field."""
        return self._judged(f"response {api_key} {version} {frame.hex()}")

    def filled(self, api_key: int, version: int, how: str = "filled") -> Judged:
        """Return a request that Kafka generates.

        "filled": a value in every field. "nulls": null in every nullable field. "tagged": filled, with an unknown tag
        wherever tags are allowed.
        """
        return self._judged(f"{how} {api_key} {version}")

    def records(self, batches: bytes) -> list[list[Any]]:
        """Return key, value (base64), offset, timestamp, timestamp type and headers of each record in batches."""
        answer = self._ask(f"records {batches.hex()}")
        assert "error" not in answer, f"{self.name} rejects the batches: {answer['error']}"
        return cast("list[list[Any]]", answer["records"])

    def partition(self, key: bytes, count: int) -> int:
        """Return the partition to which Kafka's producer sends records with this key."""
        return cast("int", self._ask(f"partition {count} {key.hex()}")["partition"])

    def _judged(self, question: str) -> Judged:
        answer = self._ask(question)
        assert "error" not in answer, f"{self.name} rejects {question}: {answer['error']}"
        return Judged(answer["header"], answer["body"], bytes.fromhex(answer["bytes"]), answer.get("left", 0))

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def judges() -> Iterator[tuple[Judge, Judge]]:
    """Run the newest release and the last one before Kafka 4."""
    program = next(build("messages").glob("java-messages-*.jar"))
    paths = {"the newest": classpath("messages"), "3.9": f"{program}:{classpath('messages_old')}"}
    with ExitStack() as stack:
        new, old = (stack.enter_context(_running(name, path)) for name, path in paths.items())
        yield new, old


@contextmanager
def newest() -> Iterator[Judge]:
    """Run only the newest release."""
    with _running("the newest", classpath("messages")) as judge:
        yield judge


@contextmanager
def _running(name: str, path: str) -> Iterator[Judge]:
    with subprocess.Popen([*_JAVA, path, _MAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Judge(name, process)
        finally:
            process.kill()
