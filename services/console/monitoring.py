"""The metrics of the console."""

from collections.abc import Callable

from kafscale.telemetry import Family, gauge
from services.console.service import Console


def families(console: Callable[[], Console]) -> list[Family]:
    """Return the metrics. ``console`` returns the console."""
    return [
        gauge(
            "kafscale_console_sessions",
            "Browsers that are signed in.",
            lambda: console().sessions,
        ),
        gauge(
            "kafscale_console_live_pages",
            "Pages that are updated live; see KAFSCALE_CONSOLE_MAX_LIVE.",
            lambda: console().live,
        ),
    ]
