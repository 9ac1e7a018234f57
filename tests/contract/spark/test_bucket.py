"""The bucket as the tasks of an audit read it: on a real S3 server, on a missing one, and as a directory."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from minio import Minio as Client

from kafscale.errors import Unavailable
from kafscale.paths import segment_key
from kafscale.segment.index import build_index
from kafscale_spark.audit.bucket import Bucket, Listed, LocalBucket, S3Bucket
from kafscale_spark.audit.findings import Kind
from kafscale_spark.audit.objects import check_segment
from tests.servers.minio import Minio
from tests.servers.ports import free_ports
from tests.support.samples.segments import make_batch, make_segment

KEY = segment_key("ns", "orders", 0, 100)
BUILT = make_segment([make_batch([30, 10]), make_batch([20])], base_offset=100)
OBJECTS = {KEY: BUILT.data, KEY.replace(".kfs", ".index"): build_index(BUILT.offsets, BUILT.positions)}


def _holding(minio: Minio, objects: Mapping[str, bytes]) -> S3Bucket:
    """Create a bucket with these objects."""
    config = minio.new_bucket()
    client = Client(urlsplit(config.endpoint).netloc, config.access_key, config.secret_key, secure=False)
    for key, data in objects.items():
        client.put_object(config.bucket, key, BytesIO(data), len(data))
    return S3Bucket(config.bucket, config.endpoint, config.region, config.access_key, config.secret_key)


@pytest.fixture(params=["s3", "local"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """A bucket with OBJECTS, and one more whose key begins with their prefix without a slash."""
    objects = {**OBJECTS, "ns-2/other": b"x"}
    if request.param == "local":
        for key, data in objects.items():
            path = tmp_path / "objects" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return LocalBucket(tmp_path)
    return _holding(request.getfixturevalue("minio"), objects)


def test_objects_of_a_bucket_are_listed_and_read(bucket: Bucket) -> None:
    assert sorted(bucket.list("ns/"), key=lambda found: found.key) == [
        Listed(key, len(OBJECTS[key])) for key in sorted(OBJECTS)
    ]
    assert list(bucket.list("none/")) == []
    assert bucket.get(KEY) == BUILT.data
    assert bucket.get("ns/none") is None
    checked = check_segment(bucket, KEY)
    assert (checked.next_offset, checked.records, checked.findings) == (103, 3, [])


def test_damage_on_s3_is_found(minio: Minio) -> None:
    data = bytearray(BUILT.data)
    data[-30] ^= 1
    bucket = _holding(minio, {**OBJECTS, KEY: bytes(data)})
    [finding, *_] = check_segment(bucket, KEY).findings
    assert (finding.kind, finding.key) == (Kind.SEGMENT_DAMAGED, KEY)


def test_an_unreachable_or_refusing_s3_is_an_error_with_the_reason(minio: Minio) -> None:
    [port] = free_ports(1)
    nobody = S3Bucket("logs", f"http://127.0.0.1:{port}", "us-east-1", "key", "secret")
    with pytest.raises(Unavailable, match=r"logs cannot be listed: .*Connection refused"):
        list(nobody.list("ns/"))
    with pytest.raises(Unavailable, match=f"{KEY} cannot be read from .*Connection refused"):
        nobody.get(KEY)
    config = minio.new_bucket()
    stranger = S3Bucket(config.bucket, config.endpoint, config.region, config.access_key, "wrong")
    with pytest.raises(Unavailable, match=f"{KEY} cannot be read from .*SignatureDoesNotMatch"):
        stranger.get(KEY)
    absent = S3Bucket("no-such-bucket", config.endpoint, config.region, config.access_key, config.secret_key)
    with pytest.raises(Unavailable, match=r"no-such-bucket cannot be listed: .*NoSuchBucket"):
        list(absent.list("ns/"))


def test_an_address_without_a_scheme_is_an_error() -> None:
    with pytest.raises(Unavailable, match=r"cannot be read .*: No host specified"):
        S3Bucket("logs", "localhost:9000").get(KEY)


def test_a_missing_directory_is_an_error_and_not_an_empty_bucket(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"{tmp_path}/none/objects cannot be listed: no such directory"):
        list(LocalBucket(tmp_path / "none").list("ns/"))


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    looped = tmp_path / "objects" / "ns" / "orders"
    looped.parent.mkdir(parents=True)
    looped.symlink_to(looped)
    bucket = LocalBucket(tmp_path)
    with pytest.raises(Unavailable, match=f"{looped} cannot be listed: Too many levels"):
        list(bucket.list("ns/"))
    with pytest.raises(Unavailable, match="ns/orders cannot be read: Too many levels"):
        bucket.get("ns/orders")
