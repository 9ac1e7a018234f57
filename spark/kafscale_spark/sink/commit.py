"""What the driver does: commits what the tasks staged, as a whole, and goes on until it knows the outcome."""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from kafscale.errors import KafscaleError, Unavailable
from kafscale.v1.common_pb2 import OK, UNAVAILABLE, Status
from kafscale.v1.storage_pb2 import CommitSinkReply, CommitSinkRequest, DiscardStagesRequest, Stage
from kafscale_spark.client import Client
from kafscale_spark.connection import Connection
from kafscale_spark.sink.calls import COMMIT_SINK, DISCARD_STAGES
from kafscale_spark.sink.staged import Target

_KEYS_PER_DISCARD = 1000
_WAIT_SECONDS = 10.0
_log = logging.getLogger(__name__)


class NotCommitted(KafscaleError):
    """The storage service refused: nothing of this epoch is visible, or will be."""


class CommitUnknown(Unavailable):
    """No storage instance said in time whether the epoch is committed."""


def commit(connection: Connection, target: Target, stages: Sequence[Stage], *, timeout: float, again: str) -> None:
    """Returns when the epoch is committed, and every partition shows it or ``timeout`` seconds are over.

    ``again``: what to tell a person about repeating the write when the outcome is not known.
    """
    what = f"epoch {target.epoch} of sink {target.sink}"
    deadline = time.monotonic() + timeout
    request = CommitSinkRequest(
        sink=target.sink,
        epoch=target.epoch,
        stages=stages,
        wait_ms=round(min(timeout, _WAIT_SECONDS) * 1000),
        once=target.once,
    )
    with Client(replace(connection, retry_seconds=timeout)) as client:
        # An answer comes after the wait that was asked for.
        seconds = connection.call_seconds + _WAIT_SECONDS
        try:
            reply = client.call(COMMIT_SINK, request, again=_unknown, seconds=seconds)
        except Unavailable as error:
            raise CommitUnknown(f"whether {what} is committed is not known. {again} {error}") from error
        if reply.status != OK:
            raise NotCommitted(f"{what} is not committed: {Status.Name(reply.status)} {reply.detail}".rstrip())
        if reply.already and client.calls == 1:
            _log.warning("%s had been committed before: a repeated write, which changes nothing", what)
        elif reply.already:
            # An earlier call may have been the commit, its answer lost.
            _log.warning("%s is committed; whether by this write or an earlier one is not known", what)
        applied = reply.applied
        while not applied and time.monotonic() < deadline:
            # Committed for good: what fails now is only the waiting.
            with suppress(Unavailable):
                applied = client.call(COMMIT_SINK, request, again=_unknown, seconds=seconds).applied
    if not applied:
        _log.warning("%s is committed; after %g s not all partitions show it yet", what, timeout)


def discard(connection: Connection, stages: Iterable[Stage]) -> None:
    """Deletes stages that nobody will commit; what cannot be deleted now expires."""
    keys = [stage.key for stage in stages]
    with Client(connection) as client:
        for first in range(0, len(keys), _KEYS_PER_DISCARD):
            try:
                client.call(DISCARD_STAGES, DiscardStagesRequest(keys=keys[first : first + _KEYS_PER_DISCARD]))
            except KafscaleError as error:
                _log.warning("stages of an aborted write are left to expire: %s", error)
                return


def _unknown(reply: CommitSinkReply) -> str:
    return (reply.detail or "not known") if reply.status == UNAVAILABLE else ""
