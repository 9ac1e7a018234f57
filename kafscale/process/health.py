"""The health of a process: named checks, each healthy, degraded or unavailable, and whether the process is ready.

A check can define from which state on the process is not ready. docs/guides/monitoring.md lists the checks of each
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

_INTERVAL_SECONDS = 1.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The thresholds for the health of the object store. Its state does not affect how clients are served."""

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
    """The content of /readyz."""

    ready: bool
    state: State
    checks: dict[str, dict[str, object]]


class Health:
    """The checks of one process. `run` must be running: it logs each change once and calls the `on_ready` listeners."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._checks: dict[str, _Check] = {}
        self._starting = True
        self._stopping = False
        self._was_ready = False
        self._reported: bool | None = None
        self._listeners: list[Callable[[bool], None]] = []

    def add(self, name: str, ask: Callable[[], Finding], *, unready_from: State | None = None) -> None:
        """Add a check. ``ask`` must be cheap and must not block."""
        self._checks[name] = _Check(name, ask, unready_from, self._clock())

    def on_ready(self, listener: Callable[[bool], None]) -> None:
        """Call ``listener`` with the current readiness at the next evaluation, and whenever it changes."""
        self._listeners.append(listener)
        self._reported = None

    def start(self) -> None:
        """Called when all services of the process are up. From now on it is ready if the checks allow it."""
        self.evaluate()
        self._starting = False
        for check in self._checks.values():
            if check.finding.state is not State.HEALTHY:
                self._log(check)
        self._notify()

    def stop(self) -> None:
        """Called when the process begins to stop. From now on it is not ready."""
        self._stopping = True
        self._notify()

    @property
    def starting(self) -> bool:
        """Whether `start` was not called yet."""
        return self._starting

    @property
    def ready(self) -> bool:
        return not (self._starting or self._stopping) and all(check.ready for check in self._checks.values())

    async def run(self) -> None:
        """Evaluate all checks every second until cancelled."""
        while True:
            self.evaluate()
            await trio.sleep(_INTERVAL_SECONDS)

    def evaluate(self) -> None:
        """Evaluate every check once."""
        for check in self._checks.values():
            former, check.finding = check.finding, check.ask()
            if check.finding.state is not former.state:
                check.since = self._clock()
                self._log(check)
        self._notify()

    def report(self) -> Report:
        """Evaluate every check and return the result."""
        self.evaluate()
        now = self._clock()
        checks: dict[str, dict[str, object]] = {}
        for check in self._checks.values():
            entry: dict[str, object] = {
                "state": check.finding.state.label,
                "since_seconds": round(now - check.since),
            }
            if check.finding.reason:
                entry["reason"] = check.finding.reason
            if not check.ready:
                entry["not_ready"] = True
            checks[check.name] = entry
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

    def _notify(self) -> None:
        ready = self.ready
        if ready is not self._was_ready:
            self._was_ready = ready
            _log.info("ready" if ready else "not ready")
        if ready is not self._reported:
            self._reported = ready
            for listener in self._listeners:
                listener(ready)

    def _log(self, check: _Check) -> None:
        """Log a change of state. Checks are expected to fail while the process starts or stops: not logged then."""
        if self._starting or self._stopping:
            return
        found = check.finding
        log = _log.info if found.state is State.HEALTHY else _log.warning
        log("health check changed", check=check.name, state=found.state.label, reason=found.reason or None)
