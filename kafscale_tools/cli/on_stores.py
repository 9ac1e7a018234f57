"""Runs commands that access the stores directly, and maps their errors to exit codes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from kafscale.errors import ConfigError, KafscaleError, Unavailable, leaves
from kafscale.metadata.topic_values import InvalidTopicName, TopicExists
from kafscale.process.logging import configure_logging
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.intakes import NoIntake
from kafscale_tools.recovery.apply import NotEmpty
from kafscale_tools.recovery.backups import NoBackup, NotThisCluster
from kafscale_tools.recovery.claim import LeftOver, NameTaken
from kafscale_tools.recovery.point_in_time import NoSuchTopic, NothingLeft
from kafscale_tools.recovery.restore import Undecided

T = TypeVar("T")

_EXITS: list[tuple[type[KafscaleError], Exit]] = [
    (ConfigError, Exit.WRONG),
    (InvalidTopicName, Exit.WRONG),
    (NoBackup, Exit.NOT_FOUND),
    (NoIntake, Exit.NOT_FOUND),
    (NoSuchTopic, Exit.NOT_FOUND),
    (TopicExists, Exit.EXISTS),
    (LeftOver, Exit.REFUSED),
    (NameTaken, Exit.REFUSED),
    (NotEmpty, Exit.REFUSED),
    (NothingLeft, Exit.REFUSED),
    (NotThisCluster, Exit.REFUSED),
    (Undecided, Exit.REFUSED),
    (Unavailable, Exit.UNAVAILABLE),
]

_EXPECTED = (KafscaleError, OSError, KeyboardInterrupt)


def run_on_stores(run: Callable[[], Awaitable[T]]) -> T:
    """Run a command. Raises Failed with the error's exit code, or KeyboardInterrupt after SIGINT."""
    configure_logging("error")
    try:
        return trio.run(run)
    # Not except*, because Python before 3.11.4 puts what such a clause raises into a group, and click handles neither
    # error in a group.
    except (*_EXPECTED, BaseExceptionGroup) as raised:
        errors = list(leaves(raised))
        if not all(isinstance(error, _EXPECTED) for error in errors):
            raise
        if any(isinstance(error, KeyboardInterrupt) for error in errors):
            raise KeyboardInterrupt from None
        code = next((code for kind, code in _EXITS if isinstance(errors[0], kind)), Exit.FAILED)
        raise Failed(str(errors[0]), code) from errors[0]
