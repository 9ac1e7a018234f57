"""A process stores objects as configured, or does not start."""

from pathlib import Path

import pytest

from kafscale.config.stores import S3Settings, open_object_store
from kafscale.errors import ConfigError, Unavailable
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.metrics import OperationCounters

_NOBODY_THERE = "http://127.0.0.1:1"


async def _open(settings: S3Settings) -> None:
    async with open_object_store(
        settings,
        recorder=OperationCounters(),
        health=StoreHealth(Thresholds()),
        random=lambda: 0.5,
        patience=0,
    ):
        pytest.fail("it started with another store than it was told to use")


async def test_an_unreachable_s3_stops_the_start(tmp_path: Path) -> None:
    settings = S3Settings(
        bucket="b", region="r", endpoint=_NOBODY_THERE, access_key="a", secret_key="s", data_dir=tmp_path / "data"
    )
    with pytest.raises(Unavailable, match="KAFSCALE_S3_ENDPOINT"):
        await _open(settings)
    assert not (tmp_path / "data").exists()


async def test_incomplete_settings_of_s3_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_S3_BUCKET"):
        await _open(S3Settings(endpoint=_NOBODY_THERE, data_dir=tmp_path / "data"))
    with pytest.raises(ConfigError, match="KAFSCALE_S3_SECRET_KEY"):
        await _open(S3Settings(bucket="b", endpoint=_NOBODY_THERE, access_key="a", data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()


async def test_an_unusable_directory_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="KAFSCALE_DATA_DIR"):
        await _open(S3Settings(data_dir=tmp_path / "file" / "data"))
