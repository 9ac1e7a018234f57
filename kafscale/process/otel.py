"""An implementation of `kafscale.tracing` with OpenTelemetry's SDK. Imported only if tracing is on."""

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as AnySpan

from kafscale.process.version import kafscale_version
from kafscale.tracing import Span

_SEND_SECONDS = 5
_DELAY_MS = 1000
_BATCH = 512
_NO_PARENT = Context()

_log = structlog.get_logger(__name__)


class OtelTracer:
    """A `Tracer` whose spans wait in a bounded queue until a thread exports them to ``endpoint``."""

    def __init__(self, endpoint: str, *, sample_ratio: float, queue_spans: int, service: str, instance: str) -> None:
        # `_LoggingExporter` logs failures once. The library would log each of them.
        library = logging.getLogger("opentelemetry")
        library.addHandler(logging.NullHandler())
        library.propagate = False
        version = kafscale_version()
        who = {"service.name": f"kafscale-{service}", "service.instance.id": instance, "service.version": version}
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)), resource=Resource.create(who), shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _LoggingExporter(OTLPSpanExporter(endpoint=endpoint, timeout=_SEND_SECONDS), endpoint),
                max_queue_size=queue_spans,
                max_export_batch_size=min(_BATCH, queue_spans),
                schedule_delay_millis=_DELAY_MS,
            )
        )
        self._tracer = self._provider.get_tracer("kafscale", version)

    def close(self) -> None:
        """Export the remaining spans. Blocks until this is done."""
        self._provider.shutdown()

    def begin(self, name: str, **attributes: str | int) -> Span | None:
        span = self._tracer.start_span(name, _NO_PARENT, attributes=attributes)
        return _OtelSpan(span) if span.is_recording() else None

    def go_on(self, name: str, place: str, *, links: Sequence[str] = (), **attributes: str | int) -> Span | None:
        parent = _context_of(place)
        if parent is None:
            return None
        linked = [Link(context) for context in map(_context_of, links) if context is not None]
        context = set_span_in_context(NonRecordingSpan(parent), _NO_PARENT)
        span = self._tracer.start_span(name, context, attributes=attributes, links=linked)
        return _OtelSpan(span) if span.is_recording() else None


class _OtelSpan:
    def __init__(self, span: AnySpan) -> None:
        self._span = span
        context = span.get_span_context()
        self._place = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    @property
    def place(self) -> str:
        return self._place

    def end(self, error: str = "") -> None:
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class _LoggingExporter(SpanExporter):
    """Logs when exports begin to fail and when they succeed again, but not each failure."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            _log.warning("span export failed, spans dropped", endpoint=self._endpoint)
        elif self._failing and not failing:
            _log.info("span export recovered", endpoint=self._endpoint)
        self._failing = failing
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


def _context_of(place: str) -> SpanContext | None:
    """Parse ``place``; None if it is not a ``traceparent`` of a recorded span."""
    try:
        version, trace_id, span_id, flags = place.split("-")
        context = SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
        )
    except ValueError:
        return None
    return context if version == "00" and context.is_valid and context.trace_flags.sampled else None
