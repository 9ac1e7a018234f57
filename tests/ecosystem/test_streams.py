"""Kafka Streams: stores are restored from their changelogs, which are compacted topics."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ecosystem.conftest import Words
from tests.ecosystem.programs import Counting, committed, compacted, policies, until
from tests.servers.apache_kafka import SHORT_LIVED, java


@pytest.fixture
def start(bootstrap: str, words: Words, name: str, tmp_path: Path) -> Callable[[], Counting]:
    """Starts the application, each time with an empty state directory."""
    runs = iter(range(9))

    def start() -> Counting:
        arguments = (bootstrap, name, str(tmp_path / f"state-{next(runs)}"), words.topic)
        return Counting(java("kafscale.streams.WordCounts", *arguments, options=SHORT_LIVED), tmp_path / "streams.log")

    return start


def test_a_killed_application_restores_its_stores_and_counts_on(
    start: Callable[[], Counting], bootstrap: str, words: Words, name: str
) -> None:
    with start() as first:
        first.ready()
        words.write("a", "b", "a")
        first.counted("a", 2, 2)
        first.counted("b", 1, 1)
        for count in range(3, 11):
            words.write("a")
            until(lambda count=count: first.counts("a")[0] == count, lambda: first.counts("a"))  # type: ignore[misc]
            # Else the next one counts them once more: at least once is what Streams promises.
            read = {words.topic: count + 1, f"{name}-by-word-repartition": count + 1}
            until(lambda read=read: committed(bootstrap, name) == read, lambda: committed(bootstrap, name))  # type: ignore[misc]
    compacted(bootstrap, f"{name}-counts-changelog", f"{name}-minutes-changelog")
    with start() as second:
        second.ready()
        second.counted("b", 1, 1)
        words.write("a")
        until(lambda: second.counts("a")[0] == 11, lambda: second.counts("a"))
        # In the minute of the others, or in one of its own.
        assert sum(second.counts("a")[1:]) == 11
    assert policies(bootstrap, name) == {
        f"{name}-counts-changelog": "compact",
        f"{name}-minutes-changelog": "compact,delete",
        f"{name}-by-word-repartition": "delete",
        f"{name}-words": "",
    }
