"""How commands end that do not end well: messages and exit codes."""

from enum import IntEnum

import click


class Exit(IntEnum):
    """Statuses of commands that ask a cluster, besides 0."""

    FAILED = 1
    WRONG = 2
    NOT_FOUND = 3
    EXISTS = 4
    REFUSED = 5
    UNAUTHENTICATED = 6
    UNAVAILABLE = 7


EXIT_CODES = """\b
Exit status of commands that ask a cluster:
  0  done
  1  it failed in part, was given up, or a service is broken: the message says what
  2  wrong options, names, numbers or configs
  3  no such topic, partition, group, instance or snapshot
  4  the topic exists
  5  refused as things are: the group has members, the instance is the last one, the metadata store has a cluster
  6  the token is missing or wrong
  7  nobody answers, or not in time: the outcome may be unknown"""


class Failed(click.ClickException):
    """Ends the command with a message and ``exit_code``."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        # click asks the instance.
        self.exit_code = int(code)  # type: ignore[misc]
