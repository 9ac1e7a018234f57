from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from services.operator.counters import OperatorCounters
from services.operator.following import Followed
from services.operator.kubernetes import ApiUnavailable, Expired, Kubernetes
from services.operator.resources import TOPIC, Kind, Object


def topic(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def version(resource: Object | None) -> str:
    return "-" if resource is None else str(resource["metadata"]["resourceVersion"])


class Script(Kubernetes):
    """Answers lists and watches as scripted, one after another, and then with nothing more."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        super().__init__(None, "default", OperatorCounters(), timeout=1.0)
        self._lists = lists
        self._watches = watches
        self.asked: list[str] = []

    async def list_all(self, kind: Kind) -> tuple[list[Object], str]:
        self.asked.append("list")
        found: tuple[list[Object], str] | Exception = self._lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    @asynccontextmanager
    async def watch(self, kind: Kind, version: str) -> AsyncIterator[AsyncIterator[tuple[str, Object]]]:
        self.asked.append(version)
        script = self._watches.pop(0) if self._watches else [None]

        async def changes() -> AsyncIterator[tuple[str, Object]]:
            for change in script:
                if change is None:
                    await trio.sleep_forever()
                if isinstance(change, Exception):
                    raise change
                yield change

        yield changes()


async def follow(script: Script) -> tuple[Followed, list[tuple[str, str]]]:
    """Follow until the script ends. Return also the reported changes, as versions before and after."""
    changes_seen: list[tuple[str, str]] = []

    def changed(former: Object | None, present: Object | None) -> None:
        changes_seen.append((version(former), version(present)))

    followed = Followed(script, TOPIC, changed)
    async with trio.open_nursery() as nursery:
        await nursery.start(followed.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    return followed, changes_seen


async def test_listed_resources_and_changes_are_reported(autojump_clock: MockClock) -> None:
    changes = [("MODIFIED", topic("a", 6)), ("ADDED", topic("c", 7)), ("DELETED", topic("b", 8)), None]
    followed, changes_seen = await follow(Script([([topic("a", 1), topic("b", 2)], "5")], [changes]))
    assert changes_seen == [("-", "1"), ("-", "2"), ("1", "6"), ("-", "7"), ("2", "-")]
    assert set(followed.objects) == {"a", "c"}


async def test_a_watch_that_ended_continues_at_its_last_version(autojump_clock: MockClock) -> None:
    script = Script([([], "5")], [[("ADDED", topic("a", 6)), ("BOOKMARK", topic("", 9))], [None]])
    followed, changes_seen = await follow(script)
    assert script.asked == ["list", "5", "9"]
    assert changes_seen == [("-", "6")]
    assert set(followed.objects) == {"a"}


async def test_missed_changes_are_found_in_a_new_list(autojump_clock: MockClock) -> None:
    lists = [([topic("a", 1), topic("b", 2)], "5"), ([topic("b", 7), topic("c", 8)], "9")]
    script = Script(lists, [[Expired("too old resource version")], [None]])
    followed, changes_seen = await follow(script)
    assert script.asked == ["list", "5", "list", "9"]
    assert changes_seen == [("-", "1"), ("-", "2"), ("1", "-"), ("2", "7"), ("-", "8")]
    assert set(followed.objects) == {"b", "c"}


async def test_an_unresponsive_server_is_asked_again(autojump_clock: MockClock) -> None:
    lists = [ApiUnavailable("no"), ([topic("a", 1)], "5"), ApiUnavailable("no"), ([topic("a", 1)], "6")]
    script = Script(lists, [[ApiUnavailable("gone")], [None]])
    followed, changes_seen = await follow(script)
    assert script.asked == ["list", "list", "5", "list", "list", "6"]
    assert changes_seen == [("-", "1"), ("1", "1")]
    assert set(followed.objects) == {"a"}
