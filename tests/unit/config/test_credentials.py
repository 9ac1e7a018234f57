"""AWS credentials from the environment: their sources, their renewal, and errors."""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
import trio
from minio.credentials.credentials import Credentials
from trio.testing import MockClock

from kafscale.config.settings import load
from kafscale.config.stores import S3Settings, open_credentials, open_object_store
from kafscale.errors import ConfigError, Unavailable
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.credentials import RenewedCredentials, Source, find_source
from kafscale.objects.metrics import OperationCounters
from kafscale.threads import run_inline
from tests.servers.minio import Minio
from tests.unit.config.aws_endpoints import AwsEndpoints, running_endpoints

BASE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def aws() -> Iterator[AwsEndpoints]:
    with running_endpoints() as endpoints:
        yield endpoints


async def _given(patience: float = 0.0) -> Credentials:
    async with open_credentials(S3Settings(bucket="b"), patience=patience) as credentials:
        return credentials()


async def test_keys_from_the_environment_have_precedence(monkeypatch: pytest.MonkeyPatch, aws: AwsEndpoints) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/container")
    found = await _given()
    assert (found.access_key, found.secret_key, found.session_token) == ("AKIAENV", "of-the-environment", "session")
    assert aws.given == 0


@pytest.mark.parametrize("profile", ["default", "other"])
async def test_the_shared_credentials_file_has_profiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = default\naws_secret_access_key = s1\n"
        "[other]\naws_access_key_id = other\naws_secret_access_key = s2\n"
    )
    if profile != "default":
        monkeypatch.setenv("AWS_PROFILE", profile)
    assert (await _given()).access_key == profile


async def test_a_web_identity_token_assumes_a_role(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aws: AwsEndpoints
) -> None:
    token = tmp_path / "token"
    token.write_text(aws.web_identity_token)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/kafscale")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    assert (await _given()).access_key == aws.access_key
    # The platform renews the token file.
    token.write_text("identity-2")
    aws.web_identity_token = "identity-2"
    assert (await _given()).access_key == aws.access_key


async def test_a_refused_token_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    aws: AwsEndpoints,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-is-worth-something")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/kafscale")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    for url in (aws.url, "http://127.0.0.1:1"):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        with pytest.raises(Unavailable, match="KAFSCALE_S3_CREDENTIALS") as caught:
            await _given()
        assert "worth-something" not in str(caught.value) + caplog.text + capfd.readouterr().out


async def test_a_containers_endpoint_provides_credentials(monkeypatch: pytest.MonkeyPatch, aws: AwsEndpoints) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", aws.container_token)
    assert (await _given()).access_key == aws.access_key


async def test_the_instance_metadata_service_is_used_in_version_2(
    monkeypatch: pytest.MonkeyPatch, aws: AwsEndpoints
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{aws.url}/")
    assert (await _given()).access_key == aws.access_key


async def test_without_any_source_the_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="KAFSCALE_S3_CREDENTIALS"):
        await _given()


async def test_a_failed_source_is_retried_and_no_other_is_used(
    monkeypatch: pytest.MonkeyPatch, aws: AwsEndpoints
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/no-such-path")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", aws.url)
    with pytest.raises(Unavailable, match="the container's credentials endpoint"):
        await _given()


@pytest.mark.parametrize(
    ("environ", "from_aws"),
    [
        ({}, True),
        ({"KAFSCALE_S3_ENDPOINT": "http://minio:9000"}, False),
        ({"KAFSCALE_S3_ACCESS_KEY": "a"}, False),
        ({"KAFSCALE_S3_ENDPOINT": "http://minio:9000", "KAFSCALE_S3_CREDENTIALS": "aws"}, True),
        ({"KAFSCALE_S3_CREDENTIALS": "static"}, False),
    ],
)
def test_the_credential_chain_is_used_by_default(environ: dict[str, str], from_aws: bool) -> None:
    assert load(S3Settings, environ).from_aws is from_aws


def test_static_keys_and_the_chain_cannot_be_combined() -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_S3_CREDENTIALS is aws, but KAFSCALE_S3_ACCESS_KEY"):
        load(S3Settings, {"KAFSCALE_S3_CREDENTIALS": "aws", "KAFSCALE_S3_ACCESS_KEY": "a"})


async def test_a_bucket_is_read_with_a_containers_credentials(
    monkeypatch: pytest.MonkeyPatch, aws: AwsEndpoints, minio: Minio
) -> None:
    aws.access_key, aws.secret_key = minio.access_key, minio.secret_key
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", aws.container_token)
    config = minio.new_bucket("aws-credentials")
    settings = S3Settings(bucket=config.bucket, endpoint=config.endpoint, credentials="aws")
    health = StoreHealth(Thresholds())
    async with open_object_store(
        settings, recorder=OperationCounters(), health=health, random=lambda: 0.5, patience=0
    ) as store:
        assert await store.list_from("") == []


def _now() -> datetime:
    return BASE + timedelta(seconds=trio.current_time())


class _Given:
    """A source whose credentials live for ``life`` seconds. ``broken``: it fails."""

    def __init__(self, life: float) -> None:
        self.life = life
        self.broken = False
        self.times: list[float] = []

    def source(self) -> Source:
        return Source("the test", self._fetch)

    def _fetch(self) -> Credentials:
        now = _now()
        self.times.append((now - BASE).total_seconds())
        if self.broken:
            raise OSError("no route")
        return Credentials(f"key-{len(self.times)}", "s", None, now + timedelta(seconds=self.life))


async def test_credentials_are_renewed_before_they_expire(autojump_clock: MockClock) -> None:
    given = _Given(3600)
    async with RenewedCredentials.open(given.source(), _now, run_sync=run_inline) as credentials:
        for _ in range(200):
            await trio.sleep(60)
            credentials()
    assert len(given.times) == 4
    assert all(3290 <= later - earlier <= 3360 for earlier, later in zip(given.times, given.times[1:], strict=False))


async def test_short_lived_credentials_are_renewed_at_half_their_life(autojump_clock: MockClock) -> None:
    given = _Given(20)
    async with RenewedCredentials.open(given.source(), _now, run_sync=run_inline) as credentials:
        for _ in range(100):
            await trio.sleep(1)
            credentials()
    assert 8 <= len(given.times) <= 11


async def test_expired_credentials_sign_nothing_and_are_renewed_later(autojump_clock: MockClock) -> None:
    given = _Given(600)
    async with RenewedCredentials.open(given.source(), _now, run_sync=run_inline) as credentials:
        given.broken = True
        with structlog.testing.capture_logs() as logs:
            await trio.sleep(599)
            assert credentials().access_key == "key-1"
            await trio.sleep(2)
            with pytest.raises(Unavailable, match="expired: OSError: no route"):
                credentials()
        assert {entry["event"] for entry in logs} == {"credentials for S3 not renewed"}
        # The pauses grow, instead of a request a second for five minutes.
        assert len(given.times) < 30
        given.broken = False
        await trio.sleep(31)
        assert credentials().access_key == f"key-{len(given.times)}"


async def test_a_signature_never_waits_for_a_renewal() -> None:
    asked, goes_on = threading.Event(), threading.Event()
    calls = []

    def fetch() -> Credentials:
        calls.append(1)
        if len(calls) > 1:
            asked.set()
            goes_on.wait(30)
        return Credentials(f"key-{len(calls)}", "s", None, datetime.now(UTC) + timedelta(seconds=4))

    async with RenewedCredentials.open(Source("slow", fetch), lambda: datetime.now(UTC)) as credentials:
        with trio.fail_after(20):
            assert await trio.to_thread.run_sync(asked.wait, 15)
            assert credentials().access_key == "key-1"
            goes_on.set()
            while credentials().access_key == "key-1":  # noqa: ASYNC110 - a thread changes it
                await trio.sleep(0.01)


async def test_closing_does_not_wait_for_a_hanging_source() -> None:
    hanging = threading.Event()
    calls = []

    def fetch() -> Credentials:
        calls.append(1)
        if len(calls) > 1:
            hanging.wait(30)
        return Credentials("key", "s", None, datetime.now(UTC) + timedelta(seconds=2))

    with trio.fail_after(10):
        async with RenewedCredentials.open(Source("hangs", fetch), lambda: datetime.now(UTC)):
            while len(calls) < 2:  # noqa: ASYNC110 - a thread changes it
                await trio.sleep(0.01)
    hanging.set()


def test_choosing_the_source_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    assert find_source().name == "the instance's metadata service"
