"""What every process does before and around its own work: settings, logs, warnings, and a clear end."""

import os
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar, cast

import structlog
import trio

from kafscale.config.network import NetworkSettings
from kafscale.config.settings import load, warn_unknown
from kafscale.config.variables import VARIABLES
from kafscale.errors import ConfigError
from kafscale.process.logging import LogSettings, configure_logging
from kafscale.process.signals import EXIT_CONFIG, run_service

T = TypeVar("T")

LAST_SECONDS = 5.0
"""For what is left when clients have gone and their records are stored: releasing partitions, closing stores."""

_log = structlog.get_logger(__name__)


class Loaded:
    """A process's settings, by class: ``settings[StorageSettings].segment_bytes``."""

    def __init__(self, classes: Iterable[type], environ: Mapping[str, str]) -> None:
        """Raises ConfigError that names every wrong variable in one line."""
        self._values: dict[type, object] = {}
        wrong = []
        for cls in classes:
            try:
                self._values[cls] = load(cls, environ)
            except ConfigError as error:
                wrong.append(str(error))
        if wrong:
            raise ConfigError("; ".join(dict.fromkeys(wrong)))

    def __contains__(self, cls: type) -> bool:
        return cls in self._values

    def __getitem__(self, cls: type[T]) -> T:
        return cast(T, self._values[cls])


def run_process(
    classes: Iterable[type],
    serve: Callable[[Loaded, trio.Event], Awaitable[None]],
    *,
    grace_ms: Callable[[Loaded], int],
    service: str = "",
    check: Callable[[Loaded], object] = lambda _: None,
    known: Collection[str] = VARIABLES,
) -> int:
    """Read ``classes`` from the environment, run ``serve`` until a signal, and give the exit status.

    ``check`` raises ConfigError for settings that make no sense together, before anything is opened. ``grace_ms``: how
    long ``serve`` may take to end; LAST_SECONDS more are for closing what it used. ``service``: its name in every line
    of the log, beside its address, for one of several processes. Variables that are not ``known`` are
    warned of; those of other services are known, since all may be started in one environment.
    """
    try:
        settings = Loaded(classes, os.environ)
        check(settings)
    except ConfigError as error:
        print(f"kafscale: {error}", file=sys.stderr)
        return EXIT_CONFIG
    configure_logging(settings[LogSettings].log_level, who=_who(service, settings) if service else None)
    for message in warn_unknown(known, os.environ):
        _log.warning(message)
    return run_service(partial(serve, settings), grace_seconds=grace_ms(settings) / 1000 + LAST_SECONDS)


def _who(service: str, settings: Loaded) -> dict[str, str]:
    network = settings[NetworkSettings]
    return {"service": service, "instance": network.advertised(service, network.rpc(service).port)}
