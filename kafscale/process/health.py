"""One process's health: named checks, each healthy, degraded or unavailable, and whether the process is ready.

A check says from which state on the process is not ready, if from any. docs/guides/monitoring.md has the rules by
service.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from kafscale.config.settings import integer, seconds, setting, share, within
from kafscale.errors import ConfigError
from kafscale.objects.availability import Thresholds
from kafscale.telemetry import Family, Finding, State

_LOOK_SECONDS = 1.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """What a process that uses the object store reads to tell how that does. States change nothing for clients."""

    s3_window_seconds: float = setting(
        "KAFSCALE_S3_HEALTH_WINDOW_SEC",
        default=60.0,
        parse=within(seconds, 1.0, 3600.0),
        doc="The time window over which requests to the object store are evaluated.",
    )
    s3_latency_warn_ms: int = setting(
        "KAFSCALE_S3_LATENCY_WARN_MS",
        default=500,
        parse=integer(1, 600_000),
        doc="The object store is degraded if half of its responses took longer than this. The transfer time at 1 MB/s "
        "is not counted.",
    )
    s3_latency_crit_ms: int = setting(
        "KAFSCALE_S3_LATENCY_CRIT_MS",
        default=3_000,
        parse=integer(1, 600_000),
        doc="The object store is unavailable if half of its responses took longer than this. The transfer time is not "
        "counted here either.",
    )
    s3_error_rate_warn: float = setting(
        "KAFSCALE_S3_ERROR_RATE_WARN",
        default=0.2,
        parse=share,
        doc="The object store is degraded if this share of the requests failed: no answer, 5xx, throttled, refused.",
    )
    s3_error_rate_crit: float = setting(
        "KAFSCALE_S3_ERROR_RATE_CRIT",
        default=0.6,
        parse=share,
        doc="The object store is unavailable if this share of the requests failed.",
    )

    def __post_init__(self) -> None:
        if self.s3_latency_crit_ms < self.s3_latency_warn_ms:
            raise ConfigError("KAFSCALE_S3_LATENCY_CRIT_MS is below KAFSCALE_S3_LATENCY_WARN_MS")
        if self.s3_error_rate_crit < self.s3_error_rate_warn:
            raise ConfigError("KAFSCALE_S3_ERROR_RATE_CRIT is below KAFSCALE_S3_ERROR_RATE_WARN")

    def thresholds(self) -> Thresholds:
        return Thresholds(
            window=self.s3_window_seconds,
            latency_warn=self.s3_latency_warn_ms / 1000,
            latency_crit=self.s3_latency_crit_ms / 1000,
            error_rate_warn=self.s3_error_rate_warn,
            error_rate_crit=self.s3_error_rate_crit,
        )


class _Check:
    def __init__(self, name: str, ask: Callable[[], Finding], unready_from: State | None, now: float) -> None:
        self.name = name
        self.ask = ask
        self.unready_from = unready_from
        self.finding = ask()
        self.since = now

    @property
    def ready(self) -> bool:
        return self.unready_from is None or self.finding.state < self.unready_from


@dataclass(frozen=True, slots=True)
class Report:
    """``checks`` as /readyz shows them."""

    ready: bool
    state: State
    checks: dict[str, dict[str, object]]


class Health:
    """The checks of one process. `run` must be running: it logs each change once and tells ``on_ready``."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._checks: dict[str, _Check] = {}
        self._starting = True
        self._stopping = False
        self._was_ready = False
        self._told: bool | None = None
        self._on_ready: list[Callable[[bool], None]] = []

    def add(self, name: str, ask: Callable[[], Finding], *, unready_from: State | None = None) -> None:
        """``ask`` is cheap and does not wait."""
        self._checks[name] = _Check(name, ask, unready_from, self._clock())

    def on_ready(self, tell: Callable[[bool], None]) -> None:
        """``tell`` is called with the present readiness at the next look, and whenever it changes."""
        self._on_ready.append(tell)
        self._told = None

    def start(self) -> None:
        """All that the process serves is up: ready from now on, as far as the checks let it."""
        self.look()
        self._starting = False
        for check in self._checks.values():
            if check.finding.state is not State.HEALTHY:
                self._log(check)
        self._tell()

    def stop(self) -> None:
        """The process is stopping: not ready from now on."""
        self._stopping = True
        self._tell()

    @property
    def starting(self) -> bool:
        """Not started yet."""
        return self._starting

    @property
    def ready(self) -> bool:
        return not (self._starting or self._stopping) and all(check.ready for check in self._checks.values())

    async def run(self) -> None:
        """Look at all checks every second, until cancelled."""
        while True:
            self.look()
            await trio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Ask every check."""
        for check in self._checks.values():
            former, check.finding = check.finding, check.ask()
            if check.finding.state is not former.state:
                check.since = self._clock()
                self._log(check)
        self._tell()

    def report(self) -> Report:
        """What is the case now."""
        self.look()
        now = self._clock()
        checks: dict[str, dict[str, object]] = {}
        for check in self._checks.values():
            shown: dict[str, object] = {
                "state": check.finding.state.label,
                "since_seconds": round(now - check.since),
            }
            if check.finding.reason:
                shown["reason"] = check.finding.reason
            if not check.ready:
                shown["not_ready"] = True
            checks[check.name] = shown
        if self._starting or self._stopping:
            doing = "stopping" if self._stopping else "starting"
            checks["process"] = {"state": State.UNAVAILABLE.label, "reason": doing, "not_ready": True}
        return Report(self.ready, self._worst(), checks)

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_health_state",
                "gauge",
                "The state of each check: 0 healthy, 1 degraded, 2 unavailable.",
                lambda: {(check.name,): int(check.finding.state) for check in self._checks.values()},
                ("check",),
            ),
            Family("kafscale_ready", "gauge", "1 if /readyz answers 200, otherwise 0.", lambda: {(): int(self.ready)}),
        ]

    def _worst(self) -> State:
        if self._starting or self._stopping:
            return State.UNAVAILABLE
        return max((check.finding.state for check in self._checks.values()), default=State.HEALTHY)

    def _tell(self) -> None:
        ready = self.ready
        if ready is not self._was_ready:
            self._was_ready = ready
            _log.info("ready" if ready else "not ready")
        if ready is not self._told:
            self._told = ready
            for tell in self._on_ready:
                tell(ready)

    def _log(self, check: _Check) -> None:
        """What is not there yet while the process starts, or not any more while it stops, is no news."""
        if self._starting or self._stopping:
            return
        found = check.finding
        log = _log.info if found.state is State.HEALTHY else _log.warning
        log("health", check=check.name, state=found.state.label, reason=found.reason or None)
