"""One produced batch makes one trace over the four services. Spans without a collector cause no harm."""

import subprocess
import sys
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafscale.config.settings import load
from kafscale.errors import ConfigError
from kafscale.process import tracing
from tests.services.collector import Collector, ReceivedSpan, running_collector
from tests.services.conftest import MakeCluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.shell import once

_QUICK = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
_STEPS = {
    ("kafscale-gateway", "Produce"): None,
    ("kafscale-storage", "append"): "Produce",
    ("kafscale-storage", "intake"): "append",
    ("kafscale-storage", "flush"): "append",
    ("kafscale-gateway", "OffsetCommit"): "Produce",
    ("kafscale-coordinator", "kafscale.v1.GroupCoordinator/OffsetCommit"): "OffsetCommit",
}
"""Each span of a trace and the name of its parent."""


def _trace(collector: Collector) -> dict[tuple[str, str], ReceivedSpan]:
    """Return the spans of the largest trace. Requests that were refused and sent again began traces too."""
    traces: dict[bytes, dict[tuple[str, str], ReceivedSpan]] = {}
    for span in list(collector.spans):
        traces.setdefault(span.trace, {})[span.service, span.name] = span
    return max(traces.values(), key=len, default={})


def _flushed(collector: Collector) -> set[bytes]:
    """Return the traces that contain a flush."""
    return {span.trace for span in list(collector.spans) if span.name == "flush"}


def test_a_produced_batch_makes_one_trace_and_a_lost_collector_blocks_nothing(
    make_cluster: MakeCluster,
) -> None:
    with ExitStack() as collecting:
        collector = collecting.enter_context(running_collector())
        env = {**_QUICK, "KAFSCALE_TRACING_ENDPOINT": collector.endpoint, "KAFSCALE_TRACING_SAMPLE_RATIO": "1"}
        with make_cluster(env=env) as cluster:
            client = ConfluentClient(cluster.bootstrap)
            client.create_topic("orders")
            client.produce("orders", [Message(b"0")])
            settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
            consumer.subscribe(["orders"])
            assert [message.value() for message in consumer.consume(1, timeout=60)] == [b"0"]
            consumer.commit(asynchronous=False)
            spans = once("spans", lambda: _trace(collector), lambda found: found.keys() >= _STEPS.keys())
            assert spans.keys() == _STEPS.keys()
            by_id = {span.id: span.name for span in spans.values()}
            assert {step: by_id.get(span.parent) for step, span in spans.items()} == _STEPS
            assert not any(span.failed for span in spans.values())
            # Another batch makes another trace. A commit that advances nothing has no trace.
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            consumer.close()
            client.produce("orders", [Message(b"1")])
            once("a trace", lambda: _flushed(collector), lambda found: len(found) == 2)
            assert [span.name for span in collector.spans].count("OffsetCommit") == 1

            collecting.close()
            for number in range(2, 12):
                assert client.produce("orders", [Message(b"%d" % number)]) == [number]
            (gateway,) = cluster.gateways
            dropped = "span export failed, spans dropped"
            once("the warning", lambda: gateway.events(dropped), lambda found: len(found) == 1)
            for process in reversed(cluster.processes):
                assert process.stop() == 0
                assert "Traceback" not in process.log.read_text()


def test_opentelemetry_is_not_imported_without_an_endpoint() -> None:
    program = (
        "import sys, services.gateway.__main__, services.storage.__main__, services.all_in_one.main;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_an_endpoint_without_the_extra_stops_the_start_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.delitem(sys.modules, "kafscale.process.otel", raising=False)
    settings = load(tracing.TracingSettings, {"KAFSCALE_TRACING_ENDPOINT": "http://127.0.0.1:4317"})
    with pytest.raises(ConfigError, match=r"KAFSCALE_TRACING_ENDPOINT needs the extra `tracing`"):
        async with tracing.open_tracer(settings, "gateway", "127.0.0.1:9094"):
            pass


@pytest.mark.parametrize("wrong", ["127.0.0.1:4317", "http://", "http://host:4317/v1/traces", "ftp://host"])
def test_an_endpoint_that_is_not_a_url_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_TRACING_ENDPOINT"):
        load(tracing.TracingSettings, {"KAFSCALE_TRACING_ENDPOINT": wrong})
