"""etcd's methods, and conversions between the interface's values and etcd's messages. Pure."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from kafscale.errors import CorruptData
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.interface import (
    MAX_NESTED,
    MAX_PLAIN,
    Event,
    Get,
    KeyValue,
    Operation,
    Put,
    TxnResult,
    Unchanged,
)
from kafscale.rpc.methods import method

_SERVICES = pb.DESCRIPTOR.services_by_name
RANGE = method(_SERVICES["KV"], "Range", pb.RangeRequest, pb.RangeResponse)
TXN = method(_SERVICES["KV"], "Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = method(_SERVICES["KV"], "Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = method(_SERVICES["Watch"], "Watch", pb.WatchRequest, pb.WatchResponse)
GRANT = method(_SERVICES["Lease"], "LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = method(_SERVICES["Lease"], "LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = method(_SERVICES["Lease"], "LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
AUTHENTICATE = method(_SERVICES["Auth"], "Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
STATUS = method(_SERVICES["Maintenance"], "Status", pb.StatusRequest, pb.StatusResponse)
ALARM = method(_SERVICES["Maintenance"], "Alarm", pb.AlarmRequest, pb.AlarmResponse)
DEFRAGMENT = method(_SERVICES["Maintenance"], "Defragment", pb.DefragmentRequest, pb.DefragmentResponse)


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return ``key`` and ``range_end`` for all keys that begin with ``prefix``."""
    # UTF-8 has no byte 0xff, so the last byte always has a successor.
    key = prefix.encode()
    return (key, key[:-1] + bytes([key[-1] + 1])) if key else (b"\0", b"\0")


def txn_request(
    compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> pb.TxnRequest:
    return pb.TxnRequest(
        compare=[
            pb.Compare(
                result=pb.Compare.EQUAL,
                target=pb.Compare.MOD,
                key=compare.key.encode(),
                mod_revision=compare.mod_revision,
            )
            for compare in compares
        ],
        success=_request_ops(then, nested=_is_nested(then, otherwise)),
        failure=_request_ops(otherwise, nested=_is_nested(then, otherwise)),
    )


def txn_result(reply: pb.TxnResponse, then: Sequence[Operation], otherwise: Sequence[Operation]) -> TxnResult:
    """Convert a reply. Raises CorruptData if it does not match the requested operations."""
    done = then if reply.succeeded else otherwise
    responses: Sequence[pb.ResponseOp] = reply.responses
    if _is_nested(then, otherwise):
        responses = [response for part in reply.responses for response in part.response_txn.responses]
    if len(responses) != len(done):
        raise CorruptData(f"etcd answered {len(responses)} of {len(done)} operations")
    reads = tuple(
        key_value(response.response_range.kvs[0]) if response.response_range.kvs else None
        for operation, response in zip(done, responses, strict=True)
        if isinstance(operation, Get)
    )
    return TxnResult(reply.succeeded, reply.header.revision, reads)


def key_value(item: pb.KeyValue) -> KeyValue:
    return KeyValue(_key(item), item.value, item.create_revision, item.mod_revision, item.lease)


def batches(events: Iterable[pb.Event]) -> list[tuple[Event, ...]]:
    """Group events by revision. etcd sends all events of a revision in one message."""
    return [
        tuple(
            Event(_key(event.kv), None if event.type == pb.Event.DELETE else key_value(event.kv), revision)
            for event in group
        )
        for revision, group in groupby(events, lambda event: event.kv.mod_revision)
    ]


def _is_nested(*branches: Sequence[Operation]) -> bool:
    """Return whether the operations are sent as nested transactions, which compare nothing."""
    return any(len(branch) > MAX_PLAIN for branch in branches)


def _request_ops(operations: Sequence[Operation], *, nested: bool) -> list[pb.RequestOp]:
    ops = [_request_op(operation) for operation in operations]
    if not nested:
        return ops
    parts = [ops[start : start + MAX_NESTED] for start in range(0, len(ops), MAX_NESTED)]
    return [pb.RequestOp(request_txn=pb.TxnRequest(success=part)) for part in parts]


def _request_op(operation: Operation) -> pb.RequestOp:
    key = operation.key.encode()
    if isinstance(operation, Get):
        return pb.RequestOp(request_range=pb.RangeRequest(key=key))
    if isinstance(operation, Put):
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=operation.value, lease=operation.lease))
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))


def _key(item: pb.KeyValue) -> str:
    # KafScale's keys are ASCII, but foreign keys must not cause errors.
    return item.key.decode(errors="surrogateescape")
