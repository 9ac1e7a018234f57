"""`kafscale inspect` on an object in a real S3."""

import trio
from click.testing import CliRunner, Result

from kafscale.objects.s3 import S3ObjectStore
from kafscale_tools.cli.main import main
from tests.servers.minio import Minio
from tests.support.samples.segments import KAFSCALE_1_INDEX, KAFSCALE_1_SEGMENT


def _inspect(*arguments: str, env: dict[str, str]) -> Result:
    return CliRunner().invoke(main, ["inspect", *arguments], env=env, catch_exceptions=False)


def test_a_segment_and_an_index_are_read_from_s3(minio: Minio) -> None:
    config = minio.new_bucket()
    key = "ns/golden/0/segment-00000000000000000000"
    other = minio.new_bucket().bucket

    async def store() -> None:
        async with S3ObjectStore.open(config) as objects:
            await objects.put_if_absent(f"{key}.kfs", KAFSCALE_1_SEGMENT.read_bytes())
            await objects.put_if_absent(f"{key}.index", KAFSCALE_1_INDEX.read_bytes())

    trio.run(store)
    env = {
        "KAFSCALE_S3_BUCKET": other,
        "KAFSCALE_S3_REGION": config.region,
        "KAFSCALE_S3_ENDPOINT": config.endpoint,
        "KAFSCALE_S3_ACCESS_KEY": config.access_key,
        "KAFSCALE_S3_SECRET_KEY": config.secret_key,
    }

    segment = _inspect("--verify", f"s3://{config.bucket}/{key}.kfs", env=env)
    assert (segment.exit_code, "Batches (17)" in segment.output) == (0, True)
    index = _inspect("--verify", f"s3://{config.bucket}/{key}.index", env=env)
    assert index.exit_code == 0
    assert "No segment" not in index.output
    absent = _inspect(f"s3://{config.bucket}/{key}.none", env=env)
    assert (absent.exit_code, "no such object" in absent.output) == (1, True)
    unset = _inspect(f"s3://{config.bucket}/{key}.kfs", env={**env, "KAFSCALE_S3_SECRET_KEY": ""})
    assert (unset.exit_code, "KAFSCALE_S3_SECRET_KEY" in unset.output) == (1, True)
