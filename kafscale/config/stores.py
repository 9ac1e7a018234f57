"""Opens the object store that the settings describe. Only this module combines stores and wrappers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import trio

from kafscale.config.settings import Parser, boolean, choice, optional, setting, text
from kafscale.errors import ConfigError
from kafscale.objects.availability import StoreHealth
from kafscale.objects.credentials import RenewedCredentials, find_source
from kafscale.objects.interface import ObjectStore
from kafscale.objects.lifecycle import LifecycleWatch
from kafscale.objects.local import LocalObjectStore
from kafscale.objects.metrics import MeteredObjectStore, Recorder
from kafscale.objects.retry import RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import CredentialsProvider, S3Config, static_credentials
from kafscale.paths import cluster_mark_key, is_namespace, parse_intake_key

_path = Parser("a path", Path)


def _parse_namespace(value: str) -> str:
    if not is_namespace(value):
        raise ValueError(value)
    return value


_namespace = Parser("names of letters, digits, '.', '_' and '-', separated by '/'", _parse_namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSettings:
    """The setting that is the same for all processes of a cluster."""

    namespace: str = setting(
        "KAFSCALE_S3_NAMESPACE",
        default="default",
        parse=_namespace,
        doc="The prefix of every key in the bucket or local directory and in the metadata store. Clusters that share a "
        "bucket or a metadata store must use different namespaces.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings(NamespaceSettings):
    """The settings of every service that reads or writes objects."""

    bucket: str = setting(
        "KAFSCALE_S3_BUCKET",
        default="",
        parse=text,
        doc="The bucket that holds the log. If not set, the log is in a local directory. If the bucket cannot be used, "
        "the process does not start.",
    )
    region: str = setting(
        "KAFSCALE_S3_REGION",
        default="",
        parse=text,
        doc="The region of the bucket. If not set, the process asks S3 for it at startup.",
    )
    endpoint: str = setting(
        "KAFSCALE_S3_ENDPOINT",
        default="",
        parse=text,
        doc="`http://host:port` or `https://host` of an S3-compatible service. If not set, Amazon S3 in the region.",
    )
    credentials: str | None = setting(
        "KAFSCALE_S3_CREDENTIALS",
        default=None,
        parse=optional(choice("static", "aws")),
        doc="`static`: KAFSCALE_S3_ACCESS_KEY and KAFSCALE_S3_SECRET_KEY. `aws`: the credentials that the AWS_* "
        "variables lead to, from the first available of these sources: keys in the environment, a role with a web "
        "identity token, the shared credentials file, the container's metadata, the instance's metadata. They are "
        "renewed before they expire. If not set, `aws` when neither a key nor KAFSCALE_S3_ENDPOINT is set, otherwise "
        "`static`.",
    )
    access_key: str = setting(
        "KAFSCALE_S3_ACCESS_KEY",
        default="",
        parse=text,
        doc="The access key. Static credentials require this and the secret key.",
    )
    secret_key: str = setting(
        "KAFSCALE_S3_SECRET_KEY", default="", parse=text, doc="The secret key for KAFSCALE_S3_ACCESS_KEY.", secret=True
    )
    session_token: str = setting(
        "KAFSCALE_S3_SESSION_TOKEN",
        default="",
        parse=text,
        doc="The session token for KAFSCALE_S3_ACCESS_KEY, if that is a temporary key.",
        secret=True,
    )
    path_style: bool | None = setting(
        "KAFSCALE_S3_PATH_STYLE",
        default=None,
        parse=optional(boolean),
        doc="Whether the bucket's name is in the path of request URLs (true) or in the host name (false). If not set, "
        "it is in the path when KAFSCALE_S3_ENDPOINT is set, otherwise in the host name.",
    )
    data_dir: Path = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_DATA_DIR",
        default=Path("kafscale-data"),
        parse=_path,
        doc="The local directory for objects, if no bucket is set, and for the embedded metadata store. Only one "
        "process can use it at a time.",
    )
    intake_fsync: bool = setting(
        "KAFSCALE_INTAKE_FSYNC",
        default=False,
        parse=boolean,
        doc="Whether records in a local directory are on disk (fsync) before they are acknowledged. If not, they "
        "survive the end of the process, but a power failure can lose those that are not in segments yet, which are "
        "usually those of the last KAFSCALE_SEGMENT_INTERVAL_MS. Segments are on disk before they are committed.",
    )

    def is_packed(self, key: str) -> bool:
        """Return whether a new object in the local directory shares a file with others: those of intakes do.

        The mark that an intake was removed has its own file, which is on disk before the metadata forgets the intake.
        """
        intake = parse_intake_key(key)
        return intake is not None and intake.number is not None

    def __post_init__(self) -> None:
        if self.credentials == "aws" and (self.access_key or self.secret_key or self.session_token):
            raise ConfigError(
                "KAFSCALE_S3_CREDENTIALS is aws, but KAFSCALE_S3_ACCESS_KEY, KAFSCALE_S3_SECRET_KEY or "
                "KAFSCALE_S3_SESSION_TOKEN is set"
            )

    @property
    def from_aws(self) -> bool:
        """Whether the credentials come from the AWS environment."""
        if self.credentials is None:
            return not (self.access_key or self.secret_key or self.endpoint)
        return self.credentials == "aws"

    def shared(self) -> Self:
        """Return these settings. Raises ConfigError without a bucket, which services in separate processes share."""
        if not self.bucket:
            raise ConfigError("KAFSCALE_S3_BUCKET is not set; services in separate processes need a bucket")
        return self

    def s3_config(self) -> S3Config:
        return S3Config(
            bucket=self.bucket,
            region=self.region,
            endpoint=self.endpoint,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            path_style=bool(self.endpoint) if self.path_style is None else self.path_style,
        )


@asynccontextmanager
async def open_credentials(settings: S3Settings, *, patience: float = 30.0) -> AsyncIterator[CredentialsProvider]:
    """Open the credentials that ``settings`` describe. They are renewed until this is exited.

    Raises a ConfigError that names a setting, or Unavailable if their source fails for ``patience`` seconds.
    """
    if settings.from_aws:
        async with RenewedCredentials.open(find_source(), _utc_now, patience=patience) as credentials:
            yield credentials
    else:
        yield static_credentials(settings.s3_config())


@asynccontextmanager
async def open_object_store(
    settings: S3Settings,
    *,
    recorder: Recorder,
    health: StoreHealth,
    random: Callable[[], float],
    patience: float = 30.0,
    lifecycle: LifecycleWatch | None = None,
) -> AsyncIterator[RetryingObjectStore]:
    """Open the store that ``settings`` describe, after testing it, with retries, metrics and health.

    ``random`` (0 to 1) randomizes the pauses of retries. ``patience``: seconds to wait for S3 to come up. ``lifecycle``
    is updated with the rules of the bucket. Raises ConfigError, which names the invalid setting, or Unavailable if S3
    does not answer or cannot serve. There is no fallback to another store.
    """
    if settings.bucket:
        async with (
            open_credentials(settings, patience=patience) as credentials,
            S3ObjectStore.open(settings.s3_config(), credentials=credentials) as store,
        ):
            await store.probe(settings.namespace, patience=patience)
            async with _metered(store, settings, recorder, health) as metered, trio.open_nursery() as nursery:
                if lifecycle is not None:
                    await nursery.start(lifecycle.run, store.lifecycle)
                yield RetryingObjectStore(metered, random)
                nursery.cancel_scope.cancel()
    elif settings.endpoint:
        raise ConfigError("KAFSCALE_S3_BUCKET is not set, but KAFSCALE_S3_ENDPOINT is")
    else:
        async with (
            LocalObjectStore.open(
                settings.data_dir, is_packed=settings.is_packed, sync_packs=settings.intake_fsync
            ) as local,
            _metered(local, settings, recorder, health) as metered,
        ):
            yield RetryingObjectStore(metered, random)


@asynccontextmanager
async def _metered(
    store: ObjectStore, settings: S3Settings, recorder: Recorder, health: StoreHealth
) -> AsyncIterator[ObjectStore]:
    metered = MeteredObjectStore(store, recorder, health)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.probe, metered, cluster_mark_key(settings.namespace))
        yield metered
        nursery.cancel_scope.cancel()


def _utc_now() -> datetime:
    return datetime.now(UTC)
