"""Structured logs on standard error: readable text on a terminal, otherwise one JSON object per line.

Modules log with ``structlog.get_logger(__name__)``. Messages that libraries log with the standard library appear in the
same format, from WARNING on.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from kafscale.config.settings import choice, setting

_OF_SEVERAL_LINES = ("exception", "stack")
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log settings of every process."""

    log_level: str = setting(
        "KAFSCALE_LOG_LEVEL",
        default="info",
        parse=choice(*_LEVELS),
        doc="The minimum severity of messages that are logged.",
    )


def configure_logging(level: str, stream: TextIO | None = None, *, who: Mapping[str, str] | None = None) -> None:
    """Configure logging for the whole process, once, before anything logs. ``stream`` defaults to standard error.

    ``who``: fields added to every line, to distinguish this process from others.
    """
    stream = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _adding(who or {}),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    rendering: list[Processor]
    if stream.isatty():
        # The renderer's own tracebacks would show local variables, which can be secrets.
        renderer = structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
        rendering = [structlog.processors.format_exc_info, _escaped, renderer]
    else:
        rendering = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(number, logging.WARNING))
    logging.captureWarnings(True)


def _escaped(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, so that names which clients choose cannot control the terminal or add lines."""
    return {name: _printable(name, value) if isinstance(value, str) else value for name, value in event.items()}


def _printable(name: str, value: str) -> str:
    if value.isprintable():
        return value
    if name in _OF_SEVERAL_LINES:
        # Indented, so that none of them looks like a line of its own.
        return "\n  ".join(_printable("", line) for line in value.splitlines())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in value)


def _adding(fields: Mapping[str, str]) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**event, **fields}

    return add
