"""A small request cannot make a huge response by listing the same thing many times."""

from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import running_gateway

TIMES = 50


async def test_what_is_listed_several_times_is_described_once() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        resource = nested(32, 4, "DescribeConfigsResource")(resource_type=2, resource_name="t", configuration_keys=None)
        configs = await client.ask(
            32, 4, resources=(resource,) * TIMES, include_synonyms=False, include_documentation=True
        )
        assert [each.resource_name for each in configs.results] == ["t"]
        groups = await client.ask(15, 5, groups=("g",) * TIMES, include_authorized_operations=False)
        assert [each.group_id for each in groups.groups] == ["g"]
        topic = nested(61, 0, "TopicRequest")(name="t", partition_indexes=(0,) * TIMES)
        producers = await client.ask(61, 0, topics=(topic,) * TIMES)
        assert [[each.partition_index for each in found.partitions] for found in producers.topics] == [[0]]
        group = nested(9, 8, "OffsetFetchRequestGroup")(group_id="g", topics=None)
        offsets = await client.ask(9, 8, groups=(group,) * TIMES, require_stable=False)
        assert [each.group_id for each in offsets.groups] == ["g"]
