"""Error messages and exit codes of commands."""

from enum import IntEnum

import click


class Exit(IntEnum):
    """Exit codes, except 0, of commands that access a cluster."""

    FAILED = 1
    WRONG = 2
    NOT_FOUND = 3
    EXISTS = 4
    REFUSED = 5
    DENIED = 6
    UNAVAILABLE = 7


EXIT_CODES = """\b
Exit status of commands that access a cluster:
  0  success
  1  the command failed in part or was cancelled, or a service is broken; see the message
  2  invalid options, names, numbers or configs
  3  the topic, partition, group, user, instance, intake or snapshot does not exist
  4  the topic already exists
  5  the current state does not allow it: for example, the group has members, the instance is the last one,
     or the metadata store already has a cluster
  6  the token, user or password is missing or wrong, or no ACL allows it
  7  no answer in time; the outcome may be unknown"""


class Failed(click.ClickException):
    """Terminates the command with a message and an exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        # click reads the attribute of the instance.
        self.exit_code = int(code)  # type: ignore[misc]
