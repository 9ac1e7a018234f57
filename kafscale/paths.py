"""Builds and parses all metadata keys, and all object keys except those in `kafscale.rewritten.keys`.

Segments and indexes are stored as ``{namespace}/{topic}/{partition}/segment-{base:020d}.kfs`` and ``.index``. Topic
names cannot contain ``~`` (Kafka allows letters, digits, ``.``, ``_`` and ``-``), so everything that does not belong
to a topic is stored under ``{namespace}/~...``.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

_IN_NAMESPACE = r"(?P<namespace>[^/]+(?:/[^/]+)*)/"
_OF_PARTITION = r"(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>0|[1-9][0-9]{0,9})"
_OBJECT = re.compile(_IN_NAMESPACE + _OF_PARTITION + r"/segment-(?P<base>[0-9]{20})\.(?P<kind>kfs|index)")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_PARTITION = re.compile(_OF_PARTITION)
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BASE_AND_EPOCH = r"(?P<base>[0-9]{20})-(?P<epoch>0|[1-9][0-9]{0,9})"
_CATALOG_PAGE = re.compile(_IN_NAMESPACE + "~catalog/" + _OF_PARTITION + "/" + _BASE_AND_EPOCH)
_PRODUCER_SNAPSHOT = re.compile(r".*/~producers/[^/]+/[0-9]+/" + _BASE_AND_EPOCH)
_ETCD_SNAPSHOT = re.compile(r"(?P<namespace>.+)/~etcd/[0-9]{8}T[0-9]{6}Z/([0-9]{8}|manifest\.json)")
_STAGE = re.compile(
    _IN_NAMESPACE + r"~stages/(?P<sink>[A-Za-z0-9._~%-]{1,255})/(?P<epoch>[0-9]{20})"
    r"/(?P<created>[0-9]{13})-(?P<token>[A-Za-z0-9-]{1,100})(?P<manifest>\.manifest)?"
)
_SNAPSHOT = r"(?P<created>[0-9]{13})-(?P<revision>[1-9][0-9]{0,18})"
_INTAKE = re.compile(_IN_NAMESPACE + r"~intake/(?P<run>[A-Za-z0-9-]{1,64})/(?:(?P<number>[0-9]{20})|done)")
_BACKUP = re.compile(_IN_NAMESPACE + "~backups/" + _SNAPSHOT + "/(?:(?P<part>[0-9]{8})|manifest)")
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")

_GROUP_VERSION = re.compile(r"(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,18})")

Kind = Literal["kfs", "index"]

_MAX_SINK_CHARACTERS = 200
_MAX_PART_BYTES = 255  # of one part of an object key

GROUP_SHARDS = 64
"""The number of shards in which consumer groups are assigned to coordinators. Keys contain it: it must not change."""


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The fields in the object key of a segment or an index."""

    namespace: str
    topic: str
    partition: int
    base_offset: int
    kind: Kind = "kfs"

    def __str__(self) -> str:
        return (
            f"{partition_prefix(self.namespace, self.topic, self.partition)}segment-{self.base_offset:020d}.{self.kind}"
        )


@dataclass(frozen=True, slots=True)
class CatalogPageKey:
    """The fields in the object key of a catalog page. ``epoch``: of the owner for which the page was written."""

    namespace: str
    topic: str
    partition: int
    base_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{catalog_prefix(self.namespace, self.topic, self.partition)}{self.base_offset:020d}-{self.epoch}"


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """The metadata keys of one consumer group. Group and member ids can be any text and are percent-encoded.

    A ``version`` (see `group_version`) is never reused for another value, so that a late write cannot overwrite one.
    """

    namespace: str
    group: str

    @property
    def prefix(self) -> str:
        """The prefix of all keys of the group."""
        return f"{group_shard_prefix(self.namespace, group_shard(self.group))}{quote(self.group, safe='')}/"

    @property
    def header(self) -> str:
        return f"{self.prefix}header"

    def member(self, member_id: str, version: str) -> str:
        return f"{self.prefix}members/{quote(member_id, safe='')}/{version}"

    def assignments(self, version: str, chunk: int) -> str:
        return f"{self.prefix}assignments/{version}/{chunk}"

    def offset(self, topic: str, partition: int) -> str:
        return f"{self.prefix}offsets/{topic}/{partition}"

    def parse_member(self, key: str) -> tuple[str, str] | None:
        """Return the member id and version, or None if this is not the key of a member."""
        member_id, _, version = key.removeprefix(f"{self.prefix}members/").partition("/")
        known = key == self.member(unquote(member_id), version) and _GROUP_VERSION.fullmatch(version)
        return (unquote(member_id), version) if known else None

    def parse_assignments(self, key: str) -> tuple[str, int] | None:
        """Return the version and chunk, or None if this is not the key of an assignment."""
        version, _, chunk = key.removeprefix(f"{self.prefix}assignments/").partition("/")
        known = _GROUP_VERSION.fullmatch(version) and _INDEX.fullmatch(chunk)
        return (version, int(chunk)) if known and key == self.assignments(version, int(chunk)) else None

    def parse_offset(self, key: str) -> tuple[str, int] | None:
        """Return the topic and partition, or None if this is not the key of a committed offset."""
        return parse_partition(f"{self.prefix}offsets/", key)


@dataclass(frozen=True, slots=True)
class StageKey:
    """The fields in the object key of a stage that a sink wrote for one of its epochs, or of that epoch's manifest.

    ``token`` is unique, so that a key is never reused for another object. Sink names can be any text and are
    percent-encoded.
    """

    namespace: str
    sink: str
    epoch: int
    created_ms: int
    token: str
    manifest: bool = False

    def __str__(self) -> str:
        kind = ".manifest" if self.manifest else ""
        return (
            f"{stages_prefix(self.namespace)}{sink_segment(self.sink)}/{self.epoch:020d}"
            f"/{self.created_ms:013d}-{self.token}{kind}"
        )


@dataclass(frozen=True, slots=True)
class IntakeKey:
    """The fields in the object key of an intake object (numbers from 1), or of the mark that the chain is removed.

    ``number`` is None in the key of the mark.
    """

    namespace: str
    run_id: str
    number: int | None

    def __str__(self) -> str:
        name = "done" if self.number is None else f"{self.number:020d}"
        return f"{intake_prefix(self.namespace, self.run_id)}{name}"


@dataclass(frozen=True, slots=True, order=True)
class BackupId:
    """Identifies a backup of the metadata by its time and revision. Older ones sort first."""

    created_ms: int
    revision: int

    def __str__(self) -> str:
        return f"{self.created_ms:013d}-{self.revision}"


@dataclass(frozen=True, slots=True)
class BackupKey:
    """The fields in the object key of a part of a backup (counted from 0), or of its manifest (``part`` is None)."""

    namespace: str
    backup: BackupId
    part: int | None = None

    def __str__(self) -> str:
        name = "manifest" if self.part is None else f"{self.part:08d}"
        return f"{backups_prefix(self.namespace)}{self.backup}/{name}"


def is_topic_name(name: str) -> bool:
    """Apply Kafka's rule: 1 to 249 characters of ``[A-Za-z0-9._-]``, but not ``.`` or ``..``."""
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def is_namespace(name: str) -> bool:
    """Return whether ``name`` is one or more path segments of ``[A-Za-z0-9._-]``, none of them ``.`` or ``..``."""
    return bool(_NAMESPACE.fullmatch(name)) and not {".", ".."} & set(name.split("/"))


def partition_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of all objects of one partition, including the trailing slash."""
    return f"{namespace}/{topic}/{partition}/"


def segment_key(namespace: str, topic: str, partition: int, base_offset: int) -> str:
    return str(SegmentKey(namespace, topic, partition, base_offset))


def index_key(namespace: str, topic: str, partition: int, base_offset: int) -> str:
    return str(SegmentKey(namespace, topic, partition, base_offset, "index"))


def parse_segment_key(key: str) -> SegmentKey | None:
    """Parse ``key``; None if it is not the key of a segment or an index."""
    found = _OBJECT.fullmatch(key)
    if found is None or not is_topic_name(found["topic"]) or not is_namespace(found["namespace"]):
        return None
    if int(found["partition"]) >= 2**31 or int(found["base"]) >= 2**63:
        return None
    kind: Kind = "kfs" if found["kind"] == "kfs" else "index"
    return SegmentKey(found["namespace"], found["topic"], int(found["partition"]), int(found["base"]), kind)


def parse_segment_key_in(prefix: str, key: str) -> SegmentKey | None:
    """Parse ``key`` below ``prefix``; None if it is deeper, as of a cluster with namespace ``{namespace}/{topic}``."""
    return None if "/" in key.removeprefix(prefix) else parse_segment_key(key)


def producers_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of a partition's producer snapshots. Topic names cannot contain ``~``."""
    return f"{namespace}/~producers/{topic}/{partition}/"


def producer_snapshot_key(namespace: str, topic: str, partition: int, high_watermark: int, epoch: int) -> str:
    return f"{producers_prefix(namespace, topic, partition)}{high_watermark:020d}-{epoch}"


def producer_snapshot_epoch(key: str) -> int:
    """Return the epoch of the owner that wrote a producer snapshot, or -1 if this is not the key of one."""
    found = _PRODUCER_SNAPSHOT.fullmatch(key)
    return int(found["epoch"]) if found else -1


def catalog_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of a partition's catalog pages."""
    return f"{namespace}/~catalog/{topic}/{partition}/"


def catalog_page_key(namespace: str, topic: str, partition: int, base_offset: int, epoch: int) -> str:
    return str(CatalogPageKey(namespace, topic, partition, base_offset, epoch))


def parse_catalog_page_key(key: str) -> CatalogPageKey | None:
    """Parse ``key``; None if it is not the key of a catalog page."""
    found = _CATALOG_PAGE.fullmatch(key)
    if found is None or not is_topic_name(found["topic"]) or not is_namespace(found["namespace"]):
        return None
    partition, base, epoch = int(found["partition"]), int(found["base"]), int(found["epoch"])
    if partition >= 2**31 or base >= 2**63 or epoch >= 2**31:
        return None
    return CatalogPageKey(found["namespace"], found["topic"], partition, base, epoch)


def is_sink_name(name: str) -> bool:
    """Return whether ``name`` has 1 to 200 characters, and at most 255 when percent-encoded as in keys."""
    return 1 <= len(name) <= _MAX_SINK_CHARACTERS and len(sink_segment(name)) <= _MAX_PART_BYTES


def sink_segment(name: str) -> str:
    # Object keys must not contain "." or ".." as a part.
    encoded = quote(name, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def stages_prefix(namespace: str) -> str:
    """The prefix of the stages and manifests of all sinks."""
    return f"{namespace}/~stages/"


def parse_stage_key(key: str) -> StageKey | None:
    """Parse ``key``; None if it is not the key of a stage or a manifest."""
    found = _STAGE.fullmatch(key)
    if found is None or not is_namespace(found["namespace"]) or int(found["epoch"]) >= 2**63:
        return None
    parsed = StageKey(
        found["namespace"],
        unquote(found["sink"]),
        int(found["epoch"]),
        int(found["created"]),
        found["token"],
        found["manifest"] is not None,
    )
    return parsed if str(parsed) == key and is_sink_name(parsed.sink) else None


def intakes_prefix(namespace: str) -> str:
    """The prefix of the intake chains of all storage runs."""
    return f"{namespace}/~intake/"


def intake_prefix(namespace: str, run_id: str) -> str:
    """The prefix of the intake chain of one storage run."""
    return f"{intakes_prefix(namespace)}{run_id}/"


def intake_key(namespace: str, run_id: str, number: int) -> str:
    return str(IntakeKey(namespace, run_id, number))


def parse_intake_key(key: str) -> IntakeKey | None:
    """Parse ``key``; None if it is not the key of an intake object or of the mark of a removed chain."""
    found = _INTAKE.fullmatch(key)
    if found is None or not is_namespace(found["namespace"]):
        return None
    number = None if found["number"] is None else int(found["number"])
    if number is not None and not 1 <= number < 2**63:
        return None
    return IntakeKey(found["namespace"], found["run"], number)


def topic_objects_prefix(namespace: str) -> str:
    """The prefix of the topic objects: a copy of each topic's metadata in the bucket."""
    return f"{namespace}/~topics/"


def topic_object_key(namespace: str, topic: str) -> str:
    return f"{topic_objects_prefix(namespace)}{topic}.json"


def backups_prefix(namespace: str) -> str:
    """The prefix of all backups of the metadata."""
    return f"{namespace}/~backups/"


def backup_mark_key(namespace: str) -> str:
    return f"{backups_prefix(namespace)}cluster"


def parse_backup_key(key: str) -> BackupKey | None:
    """Parse ``key``; None if it is not the key of a part or manifest of a backup."""
    found = _BACKUP.fullmatch(key)
    if found is None or not is_namespace(found["namespace"]):
        return None
    backup = BackupId(int(found["created"]), int(found["revision"]))
    return BackupKey(found["namespace"], backup, int(found["part"]) if found["part"] else None)


def parse_backup_id(text: str) -> BackupId | None:
    """Parse the text form of a BackupId; None if it is invalid."""
    found = parse_backup_key(f"any/~backups/{text}/manifest")
    return found.backup if found else None


def cluster_mark_key(namespace: str) -> str:
    """The key of the object that says to which cluster a namespace belongs."""
    return f"{namespace}/~cluster"


def etcd_snapshots_prefix(namespace: str) -> str:
    """The prefix of the snapshots of etcd that operators take. Each has its own name."""
    return f"{namespace}/~etcd/"


def etcd_snapshot_part_key(namespace: str, name: str, number: int) -> str:
    return f"{etcd_snapshots_prefix(namespace)}{name}/{number:08d}"


def etcd_snapshot_manifest_key(namespace: str, name: str) -> str:
    """The key of the manifest that lists the parts of a snapshot. Without it, the snapshot does not exist."""
    return f"{etcd_snapshots_prefix(namespace)}{name}/manifest.json"


def is_etcd_snapshot_key(namespace: str, key: str) -> bool:
    """Return whether ``key`` is the key of a part or the manifest of an etcd snapshot."""
    found = _ETCD_SNAPSHOT.fullmatch(key)
    return found is not None and found["namespace"] == namespace


def probe_key(namespace: str, token: str) -> str:
    """The key of an object that is written and deleted at startup to test the store."""
    return f"{namespace}/~probe/{token}"


def metadata_root(namespace: str) -> str:
    """The prefix of all metadata keys of one namespace."""
    return f"kafscale/{namespace}/"


def cluster_key(namespace: str) -> str:
    return f"{metadata_root(namespace)}cluster"


def producer_ids_key(namespace: str) -> str:
    return f"{metadata_root(namespace)}producer-ids"


def topics_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}topics/"


def topic_key(namespace: str, topic: str) -> str:
    return f"{topics_prefix(namespace)}{topic}"


def users_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}users/"


def user_key(namespace: str, user: str) -> str:
    """The metadata key of a user. Names can be any text and are percent-encoded."""
    return f"{users_prefix(namespace)}{quote(user, safe='')}"


def acls_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}acls/"


def acl_key(namespace: str, digest: str) -> str:
    """The metadata key of an ACL, which is derived from its content, so that an ACL exists at most once."""
    return f"{acls_prefix(namespace)}{digest}"


def quotas_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}quotas/"


def quota_key(namespace: str, entity: Iterable[tuple[str, str | None]]) -> str:
    """The metadata key of the quotas of an entity, whose parts are types and names; None: the default of the type.

    Names can be any text and are percent-encoded, so that none is ``<default>``.
    """
    parts = (f"{kind}={'<default>' if name is None else quote(name, safe='')}" for kind, name in entity)
    return f"{quotas_prefix(namespace)}{','.join(parts)}"


def partition_state_key(namespace: str, topic: str, partition: int) -> str:
    return f"{partition_states_prefix(namespace)}{topic}/{partition}"


def partition_states_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}partitions/"


def epoch_histories_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}epochs/"


def epoch_history_key(namespace: str, topic: str, partition: int) -> str:
    return f"{epoch_histories_prefix(namespace)}{topic}/{partition}"


def parse_partition(prefix: str, key: str) -> tuple[str, int] | None:
    """Parse the topic and partition from a key below ``prefix``; None if it is another key."""
    found = _PARTITION.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
    return (found["topic"], int(found["partition"])) if found else None


def sinks_prefix(namespace: str) -> str:
    """The prefix of the states of all sinks."""
    return f"{metadata_root(namespace)}sinks/"


def sink_key(namespace: str, sink: str) -> str:
    return f"{sinks_prefix(namespace)}{sink_segment(sink)}"


def intake_registers_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}intake/"


def intake_register_key(namespace: str, run_id: str) -> str:
    """The key of the register that says whether a storage run may still add to its intake chain."""
    return f"{intake_registers_prefix(namespace)}{run_id}"


def run_of_intake_register(namespace: str, key: str) -> str:
    """Return the run id in the key of a register."""
    return key.removeprefix(intake_registers_prefix(namespace))


def node_ids_prefix(namespace: str) -> str:
    return f"{metadata_root(namespace)}node-ids/"


def node_id_key(namespace: str, node_id: int) -> str:
    return f"{node_ids_prefix(namespace)}{node_id}"


def parse_node_id_key(namespace: str, key: str) -> int | None:
    """Parse the broker id in a key; None if it is another key."""
    digits = key.removeprefix(node_ids_prefix(namespace))
    return int(digits) if key.startswith(node_ids_prefix(namespace)) and _INDEX.fullmatch(digits) else None


def members_prefix(namespace: str, service: str) -> str:
    return f"{metadata_root(namespace)}members/{service}/"


def member_key(namespace: str, service: str, run_id: str) -> str:
    return f"{members_prefix(namespace, service)}{run_id}"


def group_shard(group: str) -> int:
    """Return the shard of a consumer group, from 0 to GROUP_SHARDS - 1."""
    return zlib.crc32(group.encode()) % GROUP_SHARDS


def group_shard_prefix(namespace: str, shard: int) -> str:
    """The prefix of all keys of the groups of a shard."""
    return f"{metadata_root(namespace)}groups/{shard}/"


def group_version(generation: int, revision: int) -> str:
    """The version of values written for a generation by the coordinator that loaded the group at ``revision``."""
    return f"{generation}-{revision}"


def parse_group_key(namespace: str, key: str) -> str | None:
    """Return the group that a key belongs to, or None if it is not the key of a group."""
    parts = key.removeprefix(f"{metadata_root(namespace)}groups/").split("/")
    if len(parts) < 3:
        return None
    group = unquote(parts[1])
    return group if key.startswith(GroupKeys(namespace, group).prefix) else None


def group_shards_prefix(namespace: str) -> str:
    """The prefix of the keys that record which coordinator has which shard."""
    return f"{metadata_root(namespace)}group-shards/"


def group_shard_key(namespace: str, shard: int) -> str:
    return f"{group_shards_prefix(namespace)}{shard}"


def group_clock_key(namespace: str) -> str:
    """The key of the clock that the retention of committed offsets uses."""
    return f"{metadata_root(namespace)}group-clock"


def parse_group_shard_key(namespace: str, key: str) -> int | None:
    """Parse the shard in a key; None if it is another key."""
    digits = key.removeprefix(group_shards_prefix(namespace))
    known = key.startswith(group_shards_prefix(namespace)) and _INDEX.fullmatch(digits) and int(digits) < GROUP_SHARDS
    return int(digits) if known else None
