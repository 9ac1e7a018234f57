"""Metrics of every process in addition to those of the Prometheus client: its build, event loop and threads."""

import os
import threading
from pathlib import Path

import trio

from kafscale.process.version import kafscale_version
from kafscale.telemetry import Family, Histogram, gauge

_INTERVAL_SECONDS = 0.25
_THREADS = Path("/proc/self/task")


class EventLoop:
    """Measures the lag of Trio's event loop. `run` must be running."""

    def __init__(self) -> None:
        self.lag = Histogram()

    async def run(self) -> None:
        """Repeatedly sleep and measure how late the task is woken, until cancelled."""
        while True:
            due = trio.current_time() + _INTERVAL_SECONDS
            await trio.sleep_until(due)
            self.lag.observe(trio.current_time() - due)

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_event_loop_lag_seconds",
                "histogram",
                "How late Trio's event loop woke a task that slept for a quarter of a second.",
                lambda: {(): self.lag},
            ),
            gauge(
                "kafscale_event_loop_tasks",
                "The number of live Trio tasks.",
                lambda: trio.lowlevel.current_statistics().tasks_living,
            ),
        ]


def process_families(service: str) -> list[Family]:
    """Return the metrics of the process that runs ``service``."""
    build = kafscale_version() or "unknown"
    return [
        Family(
            "kafscale_build_info",
            "gauge",
            "Always 1. The labels are the version of KafScale and the service, which is `all` in the one-process mode.",
            lambda: {(build, service): 1},
            ("version", "service"),
        ),
        gauge("process_threads", "The number of threads of the process, including gRPC's.", _threads),
    ]


def _threads() -> int:
    try:
        return len(os.listdir(_THREADS))
    except OSError:
        return threading.active_count()
