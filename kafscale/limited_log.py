"""Log lines about what anyone can cause as often as they like."""

from collections.abc import Callable, Mapping

import structlog
import trio

_EVERY_SECONDS = 1.0


class LimitedLog:
    """Logs an event at most once a second, with the number of times it has occurred since the last line."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._log = structlog.get_logger(__name__)
        self._count = 0
        self._logged_at = -_EVERY_SECONDS

    def info(self, **fields: object) -> None:
        self._note(self._log.info, fields)

    def warning(self, **fields: object) -> None:
        self._note(self._log.warning, fields)

    def _note(self, log: Callable[..., object], fields: Mapping[str, object]) -> None:
        self._count += 1
        now = trio.current_time()
        if now >= self._logged_at + _EVERY_SECONDS:
            log(self._event, **fields, count=self._count)
            self._count, self._logged_at = 0, now
