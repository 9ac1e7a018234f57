"""The settings of tracing, and its start. Spans are exported by OTLP over gRPC, which needs the extra ``tracing``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
import trio

from kafscale.config.settings import Parser, integer, optional, setting, share
from kafscale.errors import ConfigError
from kafscale.tracing import Tracer

_LAST_SECONDS = 2.0
"""The time to export the remaining spans when the process stops."""

_log = structlog.get_logger(__name__)


def _parse_endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Tracing is off by default."""

    endpoint: str | None = setting(
        "KAFSCALE_TRACING_ENDPOINT",
        default=None,
        parse=optional(Parser("http://HOST:PORT or https://HOST:PORT", _parse_endpoint)),
        doc="The OTLP/gRPC endpoint that receives the spans of sampled batches, such as port 4317 of an OpenTelemetry "
        "collector. With `https`, TLS is used. If not set, nothing is traced. Requires the extra `tracing`: `pip "
        "install 'kafscale[tracing]'`. Headers and certificates are set by OpenTelemetry's own variables "
        "(`OTEL_EXPORTER_OTLP_HEADERS` and others).",
    )
    sample_ratio: float = setting(
        "KAFSCALE_TRACING_SAMPLE_RATIO",
        default=0.01,
        parse=share,
        doc="The share of Produce requests that are traced. The gateway decides, and the other services follow.",
    )
    queue_spans: int = setting(
        "KAFSCALE_TRACING_QUEUE_SPANS",
        default=2048,
        parse=integer(1, 1_000_000),
        doc="The maximum number of spans of a process that wait to be sent. Further spans are dropped. Nothing else "
        "waits for spans.",
    )


@asynccontextmanager
async def open_tracer(settings: TracingSettings, service: str, instance: str) -> AsyncIterator[Tracer | None]:
    """Yield None if tracing is off. On exit, try to export the remaining spans.

    Raises ConfigError if the extra is not installed.
    """
    if settings.endpoint is None:
        yield None
        return
    try:
        from kafscale.process.otel import OtelTracer  # noqa: PLC0415  costs memory and time, and may not be installed
    except ImportError as error:
        raise ConfigError(
            f"KAFSCALE_TRACING_ENDPOINT needs the extra `tracing`; run pip install 'kafscale[tracing]' ({error})"
        ) from error
    tracer = OtelTracer(
        settings.endpoint,
        sample_ratio=settings.sample_ratio,
        queue_spans=settings.queue_spans,
        service=service,
        instance=instance,
    )
    _log.info("tracing enabled", endpoint=settings.endpoint, sample_ratio=settings.sample_ratio)
    try:
        yield tracer
    finally:
        with trio.move_on_after(_LAST_SECONDS, shield=True):
            await trio.to_thread.run_sync(tracer.close, abandon_on_cancel=True)
