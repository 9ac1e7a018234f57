"""The audit of real buckets: a healthy bucket has no findings, and each kind of damage is reported."""

import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from minio import Minio as Client
from pyspark.sql import SparkSession

from jobs import audit
from kafscale.catalog.page import SEGMENTS_PER_PAGE, build_page, parse_page
from kafscale.catalog.topic_object import parse_topic_object
from kafscale.errors import Unavailable
from kafscale.intake.format import encode, encode_seal
from kafscale.objects.interface import MAX_KEYS
from kafscale.objects.packs import Packs
from kafscale.paths import intake_prefix
from kafscale.records.checksum import crc32c
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.object import ObjectBuilder
from kafscale.rewritten.root import Entry, Root, build_root
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, SegmentFooter
from kafscale.segment.index import INDEX_HEADER_SIZE, parse_index
from kafscale.segment.reader import parse_segment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale_spark.audit.bucket import LocalBucket
from kafscale_tools.cli.main import main
from tests.servers.minio import Minio
from tests.servers.ports import free_ports
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient
from tests.support.samples.intake import RUN, entries

WAYS = ("flipped", "cut", "bad-batch", "renamed", "gap", "short", "no-index", "torn-index", "wrong-index", "lone-index")
PAGED = "wrong-page"
SEGMENTS = 4
RECORDS = 5
WAIT_SECONDS = 30


class Bucket:
    """The data directory of a process, of which tests damage copies."""

    def __init__(self, data: Path, endpoint: str) -> None:
        self.data = data
        self.endpoint = endpoint

    def segments(self, topic: str) -> list[Path]:
        return sorted((self.data / "objects" / "default" / topic / "0").glob("*.kfs"))

    def pages(self) -> list[Path]:
        return list((self.data / "objects" / "default" / "~catalog" / PAGED / "0").glob("*"))

    def copy(self, to: Path) -> "Bucket":
        for name in ("objects", "packs"):
            shutil.copytree(self.data / name, to / name)
        return Bucket(to, self.endpoint)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Topics for each kind of damage, one of them with a catalog page, and a live service."""
    directory = tmp_path_factory.mktemp("audited")
    # Only the flush command makes segments.
    broker = KafscaleBroker(directory, {"KAFSCALE_SEGMENT_INTERVAL_MS": "10000"})
    try:
        made = Bucket(directory / "data", broker.rpc)
        client = ConfluentClient(broker.bootstrap)
        for topic in WAYS:
            client.create_topic(topic, configs={"compression.type": "producer"})
        client.create_topic(PAGED, configs={"flush.ms": "1"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for segment in range(SEGMENTS):
            for topic in WAYS:
                for number in range(RECORDS):
                    producer.produce(topic, f"{segment} {number}", partition=0)
            _in_segments(producer, made)
        for segment in range(SEGMENTS_PER_PAGE):
            producer.produce(PAGED, f"{segment}", partition=0)
            _in_segments(producer, made, PAGED)
        deadline = time.monotonic() + WAIT_SECONDS
        while not made.pages():
            assert time.monotonic() < deadline, "no page is written"
            time.sleep(0.05)
        yield made
    finally:
        broker.stop()


def _in_segments(producer: Producer, bucket: Bucket, *topics: str) -> None:
    """Wait until all records of the topics are in segments, so that later ones go to others."""
    assert producer.flush(WAIT_SECONDS) == 0
    done = CliRunner().invoke(main, ["flush", *(topics or WAYS), "--server", bucket.endpoint])
    assert done.exit_code == 0, done.output


def _audit(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, str]:
    monkeypatch.setenv("KAFSCALE_DATA_DIR", str(bucket.data))
    status = audit.main(list(argv), spark)
    return status, capsys.readouterr().out


def test_a_healthy_bucket_has_no_findings(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, output = _audit(spark, bucket, monkeypatch, capsys, "--endpoints", bucket.endpoint)
    assert output.endswith("sound\n")
    assert status == 0
    assert f"{len(WAYS) * SEGMENTS * RECORDS + SEGMENTS_PER_PAGE} records in" in output
    assert "no damage" not in output


def _flipped(segments: list[Path]) -> None:
    data = bytearray(segments[1].read_bytes())
    data[-FOOTER_SIZE - 1] ^= 1
    segments[1].write_bytes(data)


def _cut(segments: list[Path]) -> None:
    segments[1].write_bytes(segments[1].read_bytes()[:-10])


def _bad_batch(segments: list[Path]) -> None:
    """Damage that existed before the segment was built, so the segment's own checksum is correct."""
    data = bytearray(segments[1].read_bytes())
    footer = SegmentFooter.parse(data)
    data[-FOOTER_SIZE - 1] ^= 1
    crc = crc32c(memoryview(data)[HEADER_SIZE:-FOOTER_SIZE])
    data[-FOOTER_SIZE:] = SegmentFooter(crc, footer.last_offset).encode()
    segments[1].write_bytes(data)


def _renamed(segments: list[Path]) -> None:
    shutil.copyfile(segments[2], segments[1])


def _gap(segments: list[Path]) -> None:
    segments[1].unlink()
    segments[1].with_suffix(".index").unlink()


def _short(segments: list[Path]) -> None:
    segments[-1].unlink()
    segments[-1].with_suffix(".index").unlink()


def _no_index(segments: list[Path]) -> None:
    segments[1].with_suffix(".index").unlink()


def _torn_index(segments: list[Path]) -> None:
    index = segments[1].with_suffix(".index")
    index.write_bytes(index.read_bytes()[:-5])


def _wrong_index(segments: list[Path]) -> None:
    index = segments[1].with_suffix(".index")
    data = bytearray(index.read_bytes())
    struct.pack_into(">q", data, INDEX_HEADER_SIZE, parse_index(data).offsets[0] + 1)
    index.write_bytes(data)


def _lone_index(segments: list[Path]) -> None:
    shutil.copyfile(segments[1].with_suffix(".index"), segments[1].with_name("segment-00000000000000000999.index"))


def _wrong_page(segments: list[Path]) -> None:
    [page] = (segments[0].parents[2] / "~catalog" / PAGED / "0").iterdir()
    content = parse_page(page.read_bytes())
    content.segments[3].size += 1
    ref = PartitionRef(topic=content.topic, topic_id=content.topic_id, partition=content.partition)
    page.write_bytes(build_page(ref, content.epoch, content.segments))


def _put_intake(bucket: Bucket, *numbers: int, seal: int) -> Path:
    """Put the intake of a run that has ended, and return its directory."""
    directory = bucket.data / "objects" / intake_prefix("default", RUN)
    directory.mkdir(parents=True)
    objects = {
        number: b"".join(encode("default", RUN, number=number, checkpoint=1, created_ms=0, entries=entries()))
        for number in numbers
    }
    objects[seal] = encode_seal("default", RUN, number=seal, created_ms=0)
    for number, data in objects.items():
        (directory / f"{number:020d}").write_bytes(data)
    return directory


DAMAGE: dict[str, tuple[Callable[[list[Path]], None], str]] = {
    "flipped": (_flipped, "segment damaged"),
    "cut": (_cut, "segment damaged"),
    "bad-batch": (_bad_batch, "segment damaged"),
    "renamed": (_renamed, "segment misplaced"),
    "gap": (_gap, "segments missing"),
    "short": (_short, "end disagrees with metadata"),
    "no-index": (_no_index, "index missing"),
    "torn-index": (_torn_index, "index damaged"),
    "wrong-index": (_wrong_index, "index wrong"),
    "lone-index": (_lone_index, "orphan"),
    PAGED: (_wrong_page, "catalog page wrong"),
}


@pytest.mark.parametrize("with_endpoints", [True, False])
def test_each_kind_of_damage_is_reported_with_its_location(
    spark: SparkSession,
    bucket: Bucket,
    with_endpoints: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = bucket.copy(tmp_path / "copy")
    for topic, (damage, _) in DAMAGE.items():
        damage(damaged.segments(topic))
    (damaged.data / "objects" / "default" / "junk.bin").write_bytes(b"x")
    intake = _put_intake(damaged, 1, 2, seal=3)
    (intake / f"{1:020d}").write_bytes((intake / f"{2:020d}").read_bytes())
    endpoints = ["--endpoints", bucket.endpoint] if with_endpoints else []
    status, output = _audit(spark, damaged, monkeypatch, capsys, "--output", str(tmp_path / "findings"), *endpoints)
    found: dict[str, set[str]] = {}
    for row in spark.read.parquet(str(tmp_path / "findings")).collect():
        found.setdefault(row.topic, set()).add(row.kind)
        assert row.damage == (row.kind not in ("orphan", "index missing"))
    expected = {topic: {kind} for topic, (_, kind) in DAMAGE.items()} | {"": {"orphan", "intake object damaged"}}
    if not with_endpoints:
        # The bucket alone does not show where logs end.
        del expected["short"]
    assert found == expected
    assert status == 1
    assert output.endswith("damaged\n")


def test_whole_intakes_are_counted_and_have_no_findings(
    spark: SparkSession,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = bucket.copy(tmp_path)
    intakes = _put_intake(copy, 1, 2, seal=3).parent
    packs = Packs(copy.data, sync=False)
    packs.load()
    of_process = len(packs.list_from("", "", MAX_KEYS))
    assert of_process > 0
    count = sum(path.is_file() for path in intakes.rglob("*")) + of_process
    status, output = _audit(spark, copy, monkeypatch, capsys, "--endpoints", bucket.endpoint)
    assert (status, "no damage" not in output) == (0, True), output
    assert [line.split()[:4] for line in output.splitlines() if line.startswith("intake objects")] == [
        ["intake", "objects", str(count), "objects"]
    ]


def _with_s3(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_damage_on_s3_is_reported(
    spark: SparkSession,
    bucket: Bucket,
    minio: Minio,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = bucket.copy(tmp_path)
    _flipped(damaged.segments("flipped"))
    settings = minio.broker_settings()
    client = Client(urlsplit(minio.endpoint).netloc, minio.access_key, minio.secret_key, secure=False)
    root = damaged.data / "objects"
    for path in [*root.glob("default/~topics/*"), *root.glob("default/flipped/0/*")]:
        client.fput_object(settings["KAFSCALE_S3_BUCKET"], path.relative_to(root).as_posix(), str(path))
    _with_s3(monkeypatch, settings)
    assert audit.main([], spark) == 1
    output = capsys.readouterr().out
    assert output.startswith(f"segment damaged: flipped-0 offset {RECORDS}: checksum of the body is")
    assert f"{SEGMENTS * RECORDS} records in {SEGMENTS} segments of 1 partitions" in output


def test_an_unreachable_bucket_is_not_reported_as_damaged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    settings = {"BUCKET": "logs", "ENDPOINT": f"http://127.0.0.1:{port}", "REGION": "us-east-1"}
    settings |= {"ACCESS_KEY": "key", "SECRET_KEY": "secret"}
    _with_s3(monkeypatch, {f"KAFSCALE_S3_{name}": value for name, value in settings.items()})
    assert audit.main([], spark) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("audit: bucket logs cannot be listed: ")


class _Unreadable(LocalBucket):
    def get(self, key: str) -> bytes | None:
        if key.endswith(".kfs"):
            raise Unavailable(f"{key} cannot be read: the disk is gone")
        return LocalBucket.get(self, key)


def test_an_object_that_no_task_can_read_is_not_reported_as_damaged(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "_bucket", lambda _: _Unreadable(bucket.data))
    assert audit.main([], spark) == 2
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("audit: ")]
    assert line.endswith("cannot be read: the disk is gone")


def _rewritten(bucket: Bucket, topic: str, count: int) -> Path:
    """Replace the first segments of a log by a rewritten object and a root, and return the path of the object."""
    objects = bucket.data / "objects"
    segments = bucket.segments(topic)
    parsed = [parse_segment(path.read_bytes()) for path in segments[:count]]
    epoch = parsed[0].header.epoch
    builder = ObjectBuilder(0, epoch=epoch, attempt=1, created_ms=0)
    for each in parsed:
        for position, end in zip(each.positions, each.ends, strict=True):
            builder.add(bytes(each.data[position:end]))
    through = parsed[-1].next_offset
    built = builder.finish(through)
    assert built is not None
    topic_id = parse_topic_object((objects / "default" / "~topics" / f"{topic}.json").read_bytes()).id
    epochs = [EpochHistory.Entry(epoch=epoch, first_offset=0)]
    key = RewrittenKey.of(built.entry, "default", topic, 0)
    root = build_root(Root(topic_id, 1, [Entry(0, through, built.entry)], epochs))
    stored = {key: built.data, key.index: built.index, RootKey("default", topic, 0, 1, epoch, 1): root}
    for name, data in stored.items():
        (objects / str(name)).parent.mkdir(parents=True, exist_ok=True)
        (objects / str(name)).write_bytes(data)
    for path in segments[:count]:
        path.unlink()
        path.with_suffix(".index").unlink()
    return objects / str(key)


@pytest.mark.parametrize("with_endpoints", [True, False])
def test_a_rewritten_log_is_verified(
    spark: SparkSession,
    bucket: Bucket,
    with_endpoints: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = bucket.copy(tmp_path)
    rewritten = _rewritten(copy, WAYS[0], 2)
    endpoints = ["--endpoints", bucket.endpoint] if with_endpoints else []
    status, output = _audit(spark, copy, monkeypatch, capsys, *endpoints)
    assert status == 0, output
    assert f"{len(WAYS) * SEGMENTS * RECORDS + SEGMENTS_PER_PAGE} records in" in output
    assert "and in 1 rewritten objects" in output
    assert "no damage" not in output
    _flipped([rewritten] * 2)
    status, output = _audit(spark, copy, monkeypatch, capsys, *endpoints)
    assert (status, "DAMAGE: rewritten object damaged: 1\n" in output) == (1, True)
