"""Reads the bounds of logs from the storage service, or from the topic objects of the bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafscale import paths
from kafscale.catalog.topic_object import parse_topic_object
from kafscale.errors import CorruptData
from kafscale.v1 import storage_pb2 as pb
from kafscale.v1.common_pb2 import OK
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.client import Client
from kafscale_spark.connection import Connection
from kafscale_spark.planning import find, is_gone, plans_of
from kafscale_spark.subscription import Subscription

Logs = Mapping[tuple[str, int], Bounds]

_ALL = Subscription(pattern=".")


def logs_of_storage(connection: Connection) -> Logs:
    """Return the current log start and high watermark of every partition of the live topics."""
    with Client(connection) as client:
        found = find(client, _ALL)
        now = pb.Bound(latest=True)
        scans = {
            partition: pb.PartitionScan(partition=found.ref(partition), start=now, end=now)
            for partition in found.partitions
        }
        plans = plans_of(client, scans)
    logs = {}
    for name, plan in plans.items():
        topic_id = found.ids[name[0]]
        if plan.status == OK:
            end = plan.high_watermark
            logs[name] = Bounds(plan.log_start, end_before=end, end_after=end, topic_id=topic_id)
        elif not is_gone(plan):
            # The partition exists, but nothing else is known.
            logs[name] = Bounds(0, start_known=False, topic_id=topic_id)
    return logs


def around(before: Logs, after: Logs) -> Logs:
    """Combine the metadata from before and after a listing to the bounds for checking the listing."""
    return {
        name: replace(bounds, end_before=before[name].end_before if _same(before.get(name), bounds) else None)
        for name, bounds in after.items()
    }


@dataclass(frozen=True, slots=True)
class BucketMetadata:
    logs: Logs
    findings: list[Finding]


def logs_of_bucket(bucket: Bucket, namespace: str) -> BucketMetadata:
    """Return the logs by the topic objects, which have no ends, and starts that may be outdated."""
    logs: dict[tuple[str, int], Bounds] = {}
    findings = []
    for listed in bucket.list(paths.topic_objects_prefix(namespace)):
        data = bucket.get(listed.key)
        if data is None:
            continue
        try:
            topic = parse_topic_object(data)
        except CorruptData as error:
            findings.append(Finding(Kind.TOPIC_DAMAGED, "", -1, -1, listed.key, str(error)))
            continue
        for number, log_start in enumerate(topic.log_starts):
            logs[topic.name, number] = Bounds(log_start, start_known=False, topic_id=topic.id)
    return BucketMetadata(logs, findings)


def _same(before: Bounds | None, after: Bounds) -> bool:
    return before is not None and before.topic_id == after.topic_id
