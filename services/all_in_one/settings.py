"""The settings that only the one-process mode has."""

from dataclasses import dataclass

from kafscale.config.settings import boolean, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class OneProcessSettings:
    """What runs in the process besides the four services."""

    console: bool = setting(
        "KAFSCALE_CONSOLE",
        default=True,
        parse=boolean,
        doc="Whether the process serves the console, at KAFSCALE_CONSOLE_ADDR.",
    )
