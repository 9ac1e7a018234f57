"""Where a process keeps objects, from its settings: the one place that stacks stores and wrappers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kafscale.errors import ConfigError
from kafscale.objects.interface import ObjectStore
from kafscale.objects.local import LocalObjectStore
from kafscale.objects.metrics import MeteredObjectStore, Recorder
from kafscale.objects.retry import RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import S3Config
from kafscale.paths import is_namespace
from kafscale.service.settings import Parser, boolean, optional, setting, text

_path = Parser("a path", Path)


def _parse_namespace(value: str) -> str:
    if not is_namespace(value):
        raise ValueError(value)
    return value


_namespace = Parser("names of letters, digits, '.', '_' and '-', separated by '/'", _parse_namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Every service that reads or writes objects has these."""

    bucket: str = setting(
        "KAFSCALE_S3_BUCKET",
        default="",
        parse=text,
        doc="The bucket that holds the log. Unset: a local directory. A bucket that cannot be used stops the start.",
    )
    region: str = setting(
        "KAFSCALE_S3_REGION", default="", parse=text, doc="The bucket's region. Unset: S3 is asked for it at start."
    )
    endpoint: str = setting(
        "KAFSCALE_S3_ENDPOINT",
        default="",
        parse=text,
        doc="`http://host:port` or `https://host` of what speaks S3's protocol. Unset: Amazon S3 in the region.",
    )
    access_key: str = setting("KAFSCALE_S3_ACCESS_KEY", default="", parse=text, doc="Needed with a bucket.")
    secret_key: str = setting(
        "KAFSCALE_S3_SECRET_KEY", default="", parse=text, doc="Needed with a bucket.", secret=True
    )
    session_token: str = setting(
        "KAFSCALE_S3_SESSION_TOKEN", default="", parse=text, doc="With temporary credentials.", secret=True
    )
    path_style: bool | None = setting(
        "KAFSCALE_S3_PATH_STYLE",
        default=None,
        parse=optional(boolean),
        doc="The bucket's name in the path of an address (true) or in its host name (false). Unset: in the path when "
        "KAFSCALE_S3_ENDPOINT is set, else in the host name.",
    )
    namespace: str = setting(
        "KAFSCALE_S3_NAMESPACE",
        default="default",
        parse=_namespace,
        doc="The first part of every key, in a local directory too. Clusters that share a bucket have one each.",
    )
    data_dir: Path = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_DATA_DIR",
        default=Path("kafscale-data"),
        parse=_path,
        doc="The local directory of a process that has no bucket (and of the embedded metadata store). One process "
        "uses it at a time.",
    )

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
async def open_object_store(
    settings: S3Settings, *, recorder: Recorder, random: Callable[[], float], patience: float = 30.0
) -> AsyncIterator[ObjectStore]:
    """The store that ``settings`` ask for, proven to work, with retries and metrics; never another one.

    ``random`` (0 to 1) spreads the retries. ``patience``: seconds to wait for S3 to come up.
    Raises ConfigError, naming the setting that is wrong, or Unavailable when S3 answers but cannot serve.
    """
    if settings.bucket:
        async with S3ObjectStore.open(settings.s3_config()) as store:
            await store.probe(settings.namespace, patience=patience)
            yield MeteredObjectStore(RetryingObjectStore(store, random), recorder)
    elif settings.endpoint:
        raise ConfigError("KAFSCALE_S3_BUCKET: it is not set, but KAFSCALE_S3_ENDPOINT is")
    else:
        async with LocalObjectStore.open(settings.data_dir) as local:
            yield MeteredObjectStore(RetryingObjectStore(local, random), recorder)
