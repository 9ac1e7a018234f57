"""How the operator handles the API server's answers. tests/k8s/operator uses a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from services.operator.counters import OperatorCounters
from services.operator.kubernetes import ApiRefused, ApiUnavailable, Expired, Kubernetes
from services.operator.resources import TOPIC, Object
from tests.unit.operator.world import Answer


class Says:
    """Gives one answer, or several in turn. A number is a status; 0 means no answer."""

    def __init__(self, *answers: Object | int) -> None:
        self._answers = list(answers)
        self.asked: list[Object] = []

    @asynccontextmanager
    async def call_api(self, method: str, **asked: Any) -> AsyncIterator[Answer]:
        self.asked.append({"method": method, **asked})
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == 0:
            await trio.sleep_forever()
        yield Answer(answer, {"message": "words of its own"}) if isinstance(answer, int) else Answer(200, answer)


def kubernetes(api: Says) -> Kubernetes:
    return Kubernetes(api, "default", OperatorCounters(), timeout=5.0)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, ApiRefused),
        (409, ApiRefused),
        (410, Expired),
        (429, ApiUnavailable),
        (500, ApiUnavailable),
        (503, ApiUnavailable),
    ],
)
async def test_permanent_and_temporary_errors_are_distinguished(status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="words of its own"):
        await kubernetes(Says(status)).create(TOPIC, {"metadata": {"name": "orders"}})


async def test_a_missing_object_is_none() -> None:
    assert await kubernetes(Says(404)).get(TOPIC, "orders") is None


async def test_a_request_to_a_silent_server_times_out(autojump_clock: MockClock) -> None:
    with pytest.raises(ApiUnavailable, match="does not answer"):
        await kubernetes(Says(0)).get(TOPIC, "orders")
    assert trio.current_time() == 5.0


async def test_an_expired_token_is_read_again() -> None:
    api = Says(401, {"metadata": {"name": "orders"}})
    assert await kubernetes(api).get(TOPIC, "orders") == {"metadata": {"name": "orders"}}
    # The second request lets kr8s handle the status, and renew its token.
    assert [asked["raise_for_status"] for asked in api.asked] == [False, True]


async def test_long_lists_are_read_in_pages() -> None:
    pages = [
        {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "more", "resourceVersion": "7"}},
        {"items": [{"metadata": {"name": "b"}}], "metadata": {"resourceVersion": "7"}},
    ]
    api = Says(*pages)
    found, version = await kubernetes(api).list_all(TOPIC)
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]
    assert version == "7"
    assert [asked["params"].get("continue") for asked in api.asked] == [None, "more"]
