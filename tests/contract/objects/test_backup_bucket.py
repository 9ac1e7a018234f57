"""Backups of the metadata and snapshots of etcd in a separate bucket with separate credentials, on MinIO."""

import hashlib
import os
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from kafscale import paths
from kafscale.config.backup_bucket import BackupSettings
from kafscale.config.settings import load
from kafscale.config.stores import S3Settings
from kafscale.errors import ConfigError
from kafscale.metadata.interface import Put
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import S3Config
from kafscale_tools.cli.main import main
from kafscale_tools.recovery.stores import opened
from tests.servers.minio import Minio

CLUSTER = "iiL196Ctcr2ySsHvN51hHw"
NAMESPACE = "production"

pytestmark = pytest.mark.usefixtures("commands_run_here")


def _of_the_log(config: S3Config, directory: Path) -> dict[str, str]:
    return {
        "KAFSCALE_S3_NAMESPACE": NAMESPACE,
        "KAFSCALE_S3_BUCKET": config.bucket,
        "KAFSCALE_S3_REGION": config.region,
        "KAFSCALE_S3_ENDPOINT": config.endpoint,
        "KAFSCALE_S3_ACCESS_KEY": config.access_key,
        "KAFSCALE_S3_SECRET_KEY": config.secret_key,
        "KAFSCALE_ETCD_ENDPOINTS": "",
        "KAFSCALE_DATA_DIR": str(directory),
    }


def _run(environ: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environ)


def _keys(config: S3Config) -> list[str]:
    async def keys() -> list[str]:
        async with S3ObjectStore.open(config) as store:
            return [info.key for info in await store.list_from("")]

    return trio.run(keys)


def _make_cluster(environ: dict[str, str], cluster: str = CLUSTER) -> None:
    async def make() -> None:
        async with opened(environ) as stores:
            await stores.objects.put_if_absent(paths.cluster_mark_key(NAMESPACE), cluster.encode())
            await stores.metadata.txn([], [Put(paths.cluster_key(NAMESPACE), ClusterInfo(cluster, 4).value())])

    trio.run(make)


@pytest.fixture
def log(minio: Minio, tmp_path: Path) -> tuple[S3Config, dict[str, str]]:
    config = minio.new_bucket()
    directory = tmp_path / "data"
    directory.mkdir()
    return config, _of_the_log(config, directory)


def test_a_backup_goes_to_its_bucket_and_is_restored_from_there(
    minio: Minio, log: tuple[S3Config, dict[str, str]]
) -> None:
    config, environ = log
    _make_cluster(environ)
    backups = minio.new_bucket()
    environ["KAFSCALE_BACKUP_S3_BUCKET"] = backups.bucket
    assert _run(environ, "backup", "--keep", "2").exit_code == 0
    assert [key for key in _keys(config) if "~backups" in key] == []
    stored = _keys(backups)
    assert [key for key in stored if key.endswith("/manifest")]
    assert paths.backup_mark_key(NAMESPACE) in stored
    assert len(_run(environ, "backup", "--list").output.splitlines()) == 2
    Path(environ["KAFSCALE_DATA_DIR"], "metadata.sqlite").unlink()
    restored = _run(environ, "restore", "--yes")
    assert restored.exit_code == 0, restored.output
    assert "snapshot" in restored.output
    assert "no snapshot" not in restored.output
    del environ["KAFSCALE_BACKUP_S3_BUCKET"]
    assert len(_run(environ, "backup", "--list").output.splitlines()) == 1


def test_two_clusters_of_one_namespace_cannot_share_a_bucket_for_backups(minio: Minio, tmp_path: Path) -> None:
    backups = minio.new_bucket()
    outcomes = []
    for cluster in (CLUSTER, "AnotherCluster0123456w"):
        directory = tmp_path / cluster
        directory.mkdir()
        environ = _of_the_log(minio.new_bucket(), directory)
        _make_cluster(environ, cluster)
        outcomes.append(_run({**environ, "KAFSCALE_BACKUP_S3_BUCKET": backups.bucket}, "backup"))
    assert outcomes[0].exit_code == 0
    assert outcomes[1].exit_code != 0
    assert f"are of cluster {CLUSTER}" in outcomes[1].output


def test_snapshots_of_etcd_go_to_their_bucket_with_credentials_that_the_log_does_not_have(
    minio: Minio, log: tuple[S3Config, dict[str, str]], tmp_path: Path
) -> None:
    config, environ = log
    backups = minio.new_bucket()
    # The endpoint of the log's bucket does not answer, and its region is unknown too.
    environ |= {
        "KAFSCALE_S3_ENDPOINT": "http://127.0.0.1:1",
        "KAFSCALE_S3_REGION": "",
        "KAFSCALE_BACKUP_S3_BUCKET": backups.bucket,
        "KAFSCALE_BACKUP_S3_ENDPOINT": backups.endpoint,
        "KAFSCALE_BACKUP_S3_ACCESS_KEY": backups.access_key,
        "KAFSCALE_BACKUP_S3_SECRET_KEY": backups.secret_key,
    }
    pages = os.urandom(1024)
    snapshot = tmp_path / "etcd.db"
    snapshot.write_bytes(pages + hashlib.sha256(pages).digest())
    of_the_log = {"KAFSCALE_S3_ENDPOINT": config.endpoint, "KAFSCALE_S3_SECRET_KEY": "wrong"}
    stored = _run({**environ, **of_the_log, "KAFSCALE_S3_REGION": "us-east-1"}, "etcd-snapshot", "store", str(snapshot))
    assert stored.exit_code == 0, stored.output
    assert _keys(config) == []
    [name] = _run(environ, "etcd-snapshot", "list").output.split()
    assert _run(environ, "etcd-snapshot", "fetch", name, str(tmp_path / "back.db")).exit_code == 0
    assert (tmp_path / "back.db").read_bytes() == snapshot.read_bytes()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"KAFSCALE_BACKUP_S3_BUCKET": "no-such-bucket"}, "KAFSCALE_BACKUP_S3_BUCKET"),
        (
            {"KAFSCALE_BACKUP_S3_ACCESS_KEY": "kafscale", "KAFSCALE_BACKUP_S3_SECRET_KEY": "wrong"},
            "KAFSCALE_BACKUP_S3_SECRET_KEY",
        ),
        ({"KAFSCALE_BACKUP_S3_REGION": "us-east-1", "KAFSCALE_BACKUP_S3_BUCKET": "none"}, "KAFSCALE_BACKUP_S3_BUCKET"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_named_by_its_own_setting(
    minio: Minio, log: tuple[S3Config, dict[str, str]], wrong: dict[str, str], named: str
) -> None:
    _, environ = log
    _make_cluster(environ)
    failed = _run({**environ, "KAFSCALE_BACKUP_S3_BUCKET": minio.new_bucket().bucket, **wrong}, "backup")
    assert failed.exit_code != 0
    assert named in failed.output


_LOG = {"KAFSCALE_S3_BUCKET": "log", "KAFSCALE_S3_REGION": "eu-west-1"}
_MINIO = {
    **_LOG,
    "KAFSCALE_S3_ENDPOINT": "http://minio:9000",
    "KAFSCALE_S3_ACCESS_KEY": "a",
    "KAFSCALE_S3_SECRET_KEY": "s",
}
_KEYS = {"KAFSCALE_BACKUP_S3_ACCESS_KEY": "b", "KAFSCALE_BACKUP_S3_SECRET_KEY": "t"}
_AWS = {"KAFSCALE_BACKUP_S3_ENDPOINT": "https://s3.amazonaws.com", "KAFSCALE_BACKUP_S3_CREDENTIALS": "aws"}


@pytest.mark.parametrize(
    ("environ", "endpoint", "access_key", "from_aws", "path_style"),
    [
        (_LOG, "", "", True, False),
        (_MINIO, "http://minio:9000", "a", False, True),
        ({**_LOG, **_KEYS}, "", "b", False, False),
        ({**_LOG, **_KEYS, "KAFSCALE_BACKUP_S3_ENDPOINT": "http://m:9000"}, "http://m:9000", "b", False, True),
        ({**_MINIO, **_AWS, "KAFSCALE_BACKUP_S3_PATH_STYLE": "false"}, "https://s3.amazonaws.com", "", True, False),
        ({**_LOG, "KAFSCALE_BACKUP_S3_ENDPOINT": "http://m:9000"}, "http://m:9000", "", True, True),
    ],
)
def test_settings_that_are_not_set_default_to_those_of_the_log(
    environ: dict[str, str], endpoint: str, access_key: str, from_aws: bool, path_style: bool
) -> None:
    own = {**environ, "KAFSCALE_BACKUP_S3_BUCKET": "backups"}
    settings = load(BackupSettings, own).over(load(S3Settings, own))
    config = settings.s3_config()
    assert (config.bucket, config.endpoint, config.region) == ("backups", endpoint, "")
    assert (config.access_key, settings.from_aws, config.path_style) == (access_key, from_aws, path_style)


@pytest.mark.parametrize(
    "wrong",
    [
        _KEYS,
        {"KAFSCALE_BACKUP_S3_BUCKET": "b", "KAFSCALE_BACKUP_S3_ACCESS_KEY": "a"},
        {"KAFSCALE_BACKUP_S3_BUCKET": "b", **_KEYS, "KAFSCALE_BACKUP_S3_CREDENTIALS": "aws"},
    ],
)
def test_inconsistent_settings_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_BACKUP_S3"):
        load(BackupSettings, wrong)
