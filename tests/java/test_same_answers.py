"""Apache Kafka and KafScale get the same requests and must give the same answers.

Each is a single broker with id 1, without an authorizer, quotas or SASL, and with only the classic group protocol.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from kafscale.clock import wall_clock_ms
from kafscale.records.codecs import Codec
from services.gateway.clients.registry import APIS
from tests.java.against import answer
from tests.java.answer_cases import CASES, SECONDS_5, Case, topic
from tests.servers.apache_kafka import apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.gateway.harness import batch


@dataclass(frozen=True)
class Brokers:
    """Addresses of the two brokers."""

    apache: str
    kafscale: str

    def ask_both(self, api_key: int, version: int, values: Mapping[str, Any]) -> tuple[Any, Any]:
        async def ask() -> list[Any]:
            answers: list[Any] = [None, None]

            async def one(index: int, bootstrap: str) -> None:
                answers[index] = await answer(bootstrap, api_key, version, values)

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(one, 0, self.apache)
                    nursery.start_soon(one, 1, self.kafscale)
            return answers

        apache, kafscale = trio.run(ask)
        return apache, kafscale


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers, with topics that the cases use.

    ``t`` has two partitions, two topics have batches that a producer compressed with zstd, and two have a cleanup
    policy without delete.
    """
    directory = tmp_path_factory.mktemp("same")
    with ExitStack() as stack:
        kafscale = KafscaleBroker(directory / "kafscale", {"KAFSCALE_BROKER_ID": "1"})
        stack.callback(kafscale.stop)
        classic = "group.coordinator.rebalance.protocols=classic"
        apache = stack.enter_context(apache_kafka(directory / "apache", heap="512m", properties=[classic]))
        both = Brokers(apache.bootstrap, kafscale.bootstrap)
        wanted = [topic("t", 2), topic("zstd", compression_type="zstd"), topic("as-produced")]
        wanted += [topic("compact", cleanup_policy=" compact"), topic("kept", cleanup_policy="")]
        created = both.ask_both(19, 7, {"topics": wanted, "timeout": SECONDS_5, "validate_only": False})
        assert [[each["error_code"] for each in reply["topics"]] for reply in created] == [[0] * 5] * 2
        for name in ("zstd", "as-produced"):
            for bootstrap in (both.apache, both.kafscale):
                trio.run(_produce, bootstrap, name)
        trio.run(_coordinate_transactions, both.apache)
        yield both


def _batch(**producer: int) -> bytes:
    return batch(b"a" * 100, codec_=Codec.ZSTD, timestamp=wall_clock_ms(), **producer)


async def _produce(bootstrap: str, topic: str) -> None:
    """Produce one batch. A Kafka broker may not lead a partition yet when the topic has been created."""
    partition = {"index": 0, "records": _batch(producer_id=7, producer_epoch=0, base_sequence=0)}
    data = [{"name": topic, "partition_data": [partition]}]
    with trio.fail_after(30):
        while True:
            reply = await answer(
                bootstrap, 0, 9, {"transactional_id": None, "acks": -1, "timeout": SECONDS_5, "topic_data": data}
            )
            (result,) = reply["responses"][0]["partition_responses"]
            if not result["error_code"].retriable:
                break
    assert result["error_code"] == 0


async def _coordinate_transactions(bootstrap: str) -> None:
    """Request a coordinator, because a Kafka broker coordinates no transactional id before the first request."""
    with trio.fail_after(30):
        while True:
            (found,) = (await answer(bootstrap, 10, 4, {"key_type": 1, "coordinator_keys": ["x"]}))["coordinators"]
            reply = await answer(bootstrap, 65, 0, {"transactional_ids": ["x"]})
            if found["error_code"] == 0 and not reply["transaction_states"][0]["error_code"].retriable:
                return
            await trio.sleep(0.1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kafka_and_kafscale_give_the_same_answer(brokers: Brokers, case: Case) -> None:
    for version in APIS[case.api_key].versions if case.versions is None else case.versions:
        apache, kafscale = brokers.ask_both(case.api_key, version, case.values)
        assert case.of(kafscale) == case.of(apache), f"version {version}"
