"""Topics that Metadata requests create: how many, and how quotas limit them."""

import pytest
from kio.schema.errors import ErrorCode
from trio.testing import MockClock

from services.gateway.apis import metadata as metadata_api
from tests.support.gateway.harness import running_gateway
from tests.unit.gateway.test_quotas import ANONYMOUS, limit
from tests.unit.gateway.test_topics import metadata

SILENCE_MS = 600_000


@pytest.mark.parametrize("version", [3, 9])
async def test_a_topic_is_not_created_automatically_while_the_quota_is_exceeded(
    mock_clock: MockClock, version: int
) -> None:
    async with running_gateway(auto_create_partitions=12, commit_silence_ms=SILENCE_MS) as harness:
        await limit(harness, ANONYMOUS, controller_mutation_rate=1)
        client = await harness.connect()
        # The bucket has eleven tokens.
        reply = await metadata(client, ["a", "b"], version)
        assert [topic.error_code for topic in reply.topics] == [0, ErrorCode.unknown_topic_or_partition]
        assert list(harness.catalog.view.by_name) == ["a"]
        assert reply.throttle_time.total_seconds() == 1
        mock_clock.jump(1)
        (topic,) = (await metadata(client, ["b"], version)).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 12)


async def test_one_request_creates_a_limited_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_api, "_MOST_CREATED", 2)
    async with running_gateway() as harness:
        client = await harness.connect()
        names = ["a", "b", "c"]
        reply = await metadata(client, names)
        assert [topic.error_code for topic in reply.topics] == [0, 0, ErrorCode.leader_not_available]
        assert list(harness.catalog.view.by_name) == ["a", "b"]
        assert [topic.error_code for topic in (await metadata(client, names)).topics] == [0, 0, 0]
