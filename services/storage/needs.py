"""What callers of the storage service need if ACLs are enforced. Spark jobs read and write topics.

A sink is a resource like a transactional id of Kafka: who commits an epoch of it decides about its later epochs too.
"""

from collections.abc import Iterable

from kafscale import paths
from kafscale.metadata.topics import TopicCatalog
from kafscale.rpc.access import Need, Needs
from kafscale.security.asks import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, READ_TOPIC, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import (
    CommitSinkRequest,
    DiscardStagesRequest,
    PlanScanRequest,
    ScanRequest,
    StageRequest,
    TopicsRequest,
)


def needs(catalog: TopicCatalog) -> Needs:
    """Return the table of the methods. ``catalog`` names the topics of ids."""

    def topics(refs: Iterable[PartitionRef]) -> set[str]:
        # The id may be that of another name. One that the catalog does not have yet is checked when the log is read.
        return {name for ref in refs for name in (ref.topic, _name_of(catalog, ref.topic_id)) if name is not None}

    def requested(request: TopicsRequest) -> Iterable[str]:
        return request.names

    def planned(request: PlanScanRequest) -> Iterable[str]:
        return topics(scan.partition for scan in request.scans)

    def of_partition(request: ScanRequest | StageRequest) -> Iterable[str]:
        return topics([request.partition])

    def committed(request: CommitSinkRequest) -> Iterable[str]:
        return topics(stage.partition for stage in request.stages)

    return {
        "Topics": (Need(DESCRIBE_CLUSTER), Need(DESCRIBE_TOPIC, requested)),
        "PlanScan": (Need(READ_TOPIC, planned),),
        "Scan": (Need(READ_TOPIC, of_partition),),
        "Stage": (Need(WRITE_TRANSACTIONAL_ID, _sink, also=(Need(WRITE_TOPIC, of_partition),)),),
        # An epoch without records has no stages.
        "CommitSink": (Need(WRITE_TRANSACTIONAL_ID, _sink, also=(Need(WRITE_TOPIC, committed, optional=True),)),),
        "DiscardStages": (Need(WRITE_TRANSACTIONAL_ID, _sinks_of_stages),),
    }


def _sink(request: StageRequest | CommitSinkRequest) -> Iterable[str]:
    return (request.sink,)


def _sinks_of_stages(request: DiscardStagesRequest) -> Iterable[str]:
    return {found.sink for key in request.keys if (found := paths.parse_stage_key(key)) is not None}


def _name_of(catalog: TopicCatalog, topic_id: bytes) -> str | None:
    found = catalog.view.live_by_id(topic_id)
    return None if found is None else found.name
