"""The common frame of all processes: settings, logs, warnings and exit status."""

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
"""The time to release partitions and close stores after clients have left and their records are stored."""

_log = structlog.get_logger(__name__)


class Loaded:
    """The settings of a process by class, as in ``settings[StorageSettings].segment_bytes``."""

    def __init__(self, classes: Iterable[type], environ: Mapping[str, str]) -> None:
        """Raises a ConfigError that names all invalid variables in one line."""
        self._values: dict[type, object] = {}
        invalid = []
        for cls in classes:
            try:
                self._values[cls] = load(cls, environ)
            except ConfigError as error:
                invalid.append(str(error))
        if invalid:
            raise ConfigError("; ".join(dict.fromkeys(invalid)))

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
    """Read ``classes`` from the environment, run ``serve`` until a signal arrives, and return the exit status.

    ``check`` raises ConfigError for inconsistent settings before anything is opened. ``grace_ms`` returns how long
    ``serve`` may take to finish, without LAST_SECONDS for closing its resources. ``service``: if set, its name and
    address are added to every log line. Variables that are not ``known`` cause a warning. Variables of all services
    are known by default, because services may be started in the same environment.
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
