"""An OpenTelemetry collector that accepts spans by OTLP over gRPC and keeps them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """Ids as received. ``parent`` is empty for the first span of a trace."""

    service: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    links: frozenset[bytes]
    failed: bool


@dataclass
class Collector(TraceServiceServicer):
    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    """Whole messages."""

    def Export(  # noqa: N802  the service's own name
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.received.append(request.SerializeToString())
        for resource in request.resource_spans:
            who = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        ReceivedSpan(
                            service=who["service.name"],
                            name=span.name,
                            trace=span.trace_id,
                            id=span.span_id,
                            parent=span.parent_span_id,
                            links=frozenset(link.span_id for link in span.links),
                            failed=span.status.code != 0,
                        )
                    )
        return ExportTraceServiceResponse()


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector on a free port of 127.0.0.1."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    collector.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
