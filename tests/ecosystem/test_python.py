"""Faust's tables and Quix Streams' state: an instance without its disk restores them from compacted changelogs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ecosystem.conftest import Words
from tests.ecosystem.programs import PATIENCE, committed, policies, until
from tests.servers.process import ServerProcess
from tests.servers.python_env import PROGRAMS, frameworks_python
from tests.support.clients.confluent import ConfluentClient


class Program:
    """One of ``python/``; each run begins with an empty directory."""

    def __init__(self, program: str, bootstrap: str, name: str, words: Words, directory: Path, ready: str) -> None:
        self.counts = f"{name}-counted"
        self._command = [str(frameworks_python()), str(PROGRAMS / program), bootstrap, name]
        self._topics = [words.topic, self.counts]
        self._directory = directory
        self._ready = ready
        self._runs = iter(range(9))

    @contextmanager
    def running(self) -> Iterator[ServerProcess]:
        state = self._directory / f"state-{next(self._runs)}"
        command = [*self._command, str(state), *self._topics]
        with ServerProcess(command, log=self._directory / "program.log") as process:
            try:
                process.wait_for(lambda line: self._ready in line or None, timeout=PATIENCE)
                yield process
            finally:
                print(process.tail())


def _values(client: ConfluentClient, topic: str) -> list[str]:
    """Sorted: two partitions have no order."""
    ends = {each: client.offsets(topic, partition=each)[1] for each in range(2)}
    found = [one for each, end in ends.items() for one in client.consume(topic, count=end, partition=each)]
    return sorted((one.value or b"").decode() for one in found)


@pytest.mark.parametrize(
    ("program", "ready", "expected", "changelogs"),
    [
        (
            "faust_counts.py",
            # Faust fetches before it seeks to what was committed: a record that it finds as it starts may count twice.
            "Worker ready",
            (["a 1 1", "a 2 2", "b 1 1"], ["a 3 3"]),
            {"{name}-counts-changelog": "compact", "{name}-days-changelog": "compact,delete"},
        ),
        (
            "quix_counts.py",
            "application started",
            (["a 1", "a 2", "b 1", "day 1", "day 1", "day 2"], ["a 3", "day 3"]),
            {
                "changelog__{name}--{name}-words--default": "compact",
                "changelog__{name}--{name}-words--tumbling_window_86400000_count": "compact",
            },
        ),
    ],
)
def test_what_was_counted_is_restored(
    program: str,
    ready: str,
    expected: tuple[list[str], list[str]],
    changelogs: dict[str, str],
    bootstrap: str,
    client: ConfluentClient,
    words: Words,
    name: str,
    tmp_path: Path,
) -> None:
    counting = Program(program, bootstrap, name, words, tmp_path, ready)
    client.create_topic(counting.counts, partitions=2)
    first, later = expected
    with counting.running() as process:
        words.write("a", "b", "a")
        until(lambda: len(_values(client, counting.counts)) >= len(first), process.tail)
        # Words that are not committed when the program stops are counted twice.
        until(lambda: committed(bootstrap, name).get(words.topic) == 3, process.tail)
    assert _values(client, counting.counts) == first
    with counting.running() as process:
        words.write("a")
        until(lambda: len(_values(client, counting.counts)) >= len(first + later), process.tail)
    assert _values(client, counting.counts) == sorted(first + later)
    shown = policies(bootstrap, name, "changelog__")
    assert {topic: policy for topic, policy in shown.items() if "changelog" in topic} == {
        topic.format(name=name): policy for topic, policy in changelogs.items()
    }
