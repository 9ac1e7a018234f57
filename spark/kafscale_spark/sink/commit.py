"""The driver's part of a write: commits all stages of the tasks atomically, and retries until the outcome is known."""

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
    """The storage service refused the commit. No record of this epoch is or will become visible."""


class CommitUnknown(Unavailable):
    """No storage instance reported in time whether the epoch is committed."""


def commit(connection: Connection, target: Target, stages: Sequence[Stage], *, timeout: float, again: str) -> None:
    """Commit the epoch, and return when every partition shows it or ``timeout`` seconds have passed.

    ``again`` is the advice about repeating the write that the error contains if the outcome is unknown.
    Raises NotCommitted, CommitUnknown.
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
        # Storage answers after the requested wait.
        seconds = connection.call_seconds + _WAIT_SECONDS
        try:
            reply = client.call(COMMIT_SINK, request, again=_unknown, seconds=seconds)
        except Unavailable as error:
            raise CommitUnknown(f"it is unknown whether {what} is committed. {again} {error}") from error
        if reply.status != OK:
            raise NotCommitted(f"{what} is not committed: {Status.Name(reply.status)} {reply.detail}".rstrip())
        if reply.already and client.calls == 1:
            _log.warning("%s was committed before; this is a repeated write, which changes nothing", what)
        elif reply.already:
            # An earlier call may have committed it, but its answer was lost.
            _log.warning("%s is committed; it is unknown whether by this write or an earlier one", what)
        applied = reply.applied
        while not applied and time.monotonic() < deadline:
            # It is committed; only the wait can fail.
            with suppress(Unavailable):
                applied = client.call(COMMIT_SINK, request, again=_unknown, seconds=seconds).applied
    if not applied:
        _log.warning("%s is committed, but not all partitions show it after %g s", what, timeout)


def discard(connection: Connection, stages: Iterable[Stage]) -> None:
    """Delete stages that will not be committed. Stages that cannot be deleted now expire later."""
    keys = [stage.key for stage in stages]
    with Client(connection) as client:
        for first in range(0, len(keys), _KEYS_PER_DISCARD):
            try:
                client.call(DISCARD_STAGES, DiscardStagesRequest(keys=keys[first : first + _KEYS_PER_DISCARD]))
            except KafscaleError as error:
                _log.warning("stages of an aborted write could not be deleted and will expire: %s", error)
                return


def _unknown(reply: CommitSinkReply) -> str:
    return (reply.detail or "outcome unknown") if reply.status == UNAVAILABLE else ""
