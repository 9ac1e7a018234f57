"""Lists the sinks, from their records in the metadata store."""

from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.metadata.interface import KeyValue, MetadataStore
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.metadata_pb2 import Sink

_FORMAT = 1


async def list_sinks(metadata: MetadataStore, namespace: str) -> pb.ListSinksReply:
    """Raises Unavailable, Refused."""
    prefix = paths.sinks_prefix(namespace)
    found = await metadata.read_prefix(prefix)
    return pb.ListSinksReply(sinks=[_shown(item, prefix) for item in found.items])


def _shown(item: KeyValue, prefix: str) -> pb.SinkStatus:
    try:
        record = Sink.FromString(item.value)
        fault = "" if record.format == _FORMAT else f"its record has format {record.format}"
    except DecodeError:
        fault = "its record does not parse"
    if fault:
        return pb.SinkStatus(name=item.key.removeprefix(prefix), error=fault)
    return pb.SinkStatus(
        name=record.sink,
        epoch=record.epoch,
        committed_ms=record.committed_ms,
        once=record.once,
        remaining=[pb.SinkPartition(topic=ref.topic, partition=ref.partition) for ref in record.remaining],
        discarded_epochs=len(record.discarded),
    )
