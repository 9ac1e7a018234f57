"""The bucket for etcd snapshots and metadata backups, if it is not the log's bucket.

Keys are the same in both buckets: ``{namespace}/~etcd/`` and ``{namespace}/~backups/``.
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from kafscale import paths
from kafscale.config.settings import boolean, choice, load, optional, setting, text
from kafscale.config.stores import S3Settings, open_credentials
from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.objects.retry import RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSettings:
    """Read by `kafscale backup`, `kafscale restore` and `kafscale etcd-snapshot`."""

    bucket: str = setting(
        "KAFSCALE_BACKUP_S3_BUCKET",
        default="",
        parse=text,
        doc="The bucket for etcd snapshots and metadata backups. Its keys are under KAFSCALE_S3_NAMESPACE, as in the "
        "log's bucket. If not set, the log's bucket or directory. `kafscale restore` and `kafscale etcd-snapshot "
        "fetch` also read from it.",
    )
    endpoint: str = setting(
        "KAFSCALE_BACKUP_S3_ENDPOINT",
        default="",
        parse=text,
        doc="The endpoint of KAFSCALE_BACKUP_S3_BUCKET. If not set, KAFSCALE_S3_ENDPOINT.",
    )
    region: str = setting(
        "KAFSCALE_BACKUP_S3_REGION",
        default="",
        parse=text,
        doc="The region of KAFSCALE_BACKUP_S3_BUCKET. If not set, the command asks S3 for it.",
    )
    credentials: str | None = setting(
        "KAFSCALE_BACKUP_S3_CREDENTIALS",
        default=None,
        parse=optional(choice("static", "aws")),
        doc="See KAFSCALE_S3_CREDENTIALS. If not set, `static` when KAFSCALE_BACKUP_S3_ACCESS_KEY is set, otherwise "
        "the credentials of the log's bucket.",
    )
    access_key: str = setting(
        "KAFSCALE_BACKUP_S3_ACCESS_KEY",
        default="",
        parse=text,
        doc="The access key. If not set, the credentials of the log's bucket.",
    )
    secret_key: str = setting(
        "KAFSCALE_BACKUP_S3_SECRET_KEY",
        default="",
        parse=text,
        doc="The secret key for KAFSCALE_BACKUP_S3_ACCESS_KEY.",
        secret=True,
    )
    session_token: str = setting(
        "KAFSCALE_BACKUP_S3_SESSION_TOKEN",
        default="",
        parse=text,
        doc="The session token for KAFSCALE_BACKUP_S3_ACCESS_KEY, if that is a temporary key.",
        secret=True,
    )
    path_style: bool | None = setting(
        "KAFSCALE_BACKUP_S3_PATH_STYLE",
        default=None,
        parse=optional(boolean),
        doc="See KAFSCALE_S3_PATH_STYLE. If not set, the same as for the log's bucket if the endpoint is the same, "
        "otherwise in the path.",
    )

    def __post_init__(self) -> None:
        if not self.bucket and (self.endpoint or self.credentials or self.access_key or self.secret_key):
            raise ConfigError("KAFSCALE_BACKUP_S3_BUCKET is not set, but other KAFSCALE_BACKUP_S3_* variables are")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("KAFSCALE_BACKUP_S3_ACCESS_KEY and KAFSCALE_BACKUP_S3_SECRET_KEY must be set together")
        if self.access_key and self.credentials == "aws":
            raise ConfigError("KAFSCALE_BACKUP_S3_CREDENTIALS is aws, but KAFSCALE_BACKUP_S3_ACCESS_KEY is set")

    def over(self, log: S3Settings) -> S3Settings:
        """Return the settings of a store on this bucket. Unset variables default to the values in ``log``."""
        settings = replace(log, bucket=self.bucket, region=self.region)
        if self.endpoint:
            path_style = True if self.path_style is None else self.path_style
            settings = replace(settings, endpoint=self.endpoint, path_style=path_style)
        elif self.path_style is not None:
            settings = replace(settings, path_style=self.path_style)
        if self.access_key or self.credentials:
            settings = replace(
                settings,
                credentials=self.credentials or "static",
                access_key=self.access_key,
                secret_key=self.secret_key,
                session_token=self.session_token,
            )
        elif log.credentials is None:
            # Otherwise the endpoint, which may be different here, would decide.
            settings = replace(settings, credentials="aws" if log.from_aws else "static")
        return settings


@asynccontextmanager
async def open_backup_bucket(environ: Mapping[str, str]) -> AsyncIterator[ObjectStore | None]:
    """Yield the bucket for backups, or None if the log's bucket is used. Raises ConfigError, Unavailable, Refused."""
    settings = load(BackupSettings, environ)
    if not settings.bucket:
        yield None
        return
    store_settings = settings.over(load(S3Settings, environ))
    async with AsyncExitStack() as stack:
        try:
            credentials = await stack.enter_async_context(open_credentials(store_settings))
            opened = await stack.enter_async_context(
                S3ObjectStore.open(store_settings.s3_config(), credentials=credentials)
            )
            store = RetryingObjectStore(opened, random.random)
            await store.list_from(paths.backups_prefix(store_settings.namespace), limit=1)
        except ConfigError as error:
            # The adapter's messages name the variables of the log's bucket.
            raise ConfigError(str(error).replace("KAFSCALE_S3_", "KAFSCALE_BACKUP_S3_")) from error
        except Refused as error:
            raise ConfigError(f"KAFSCALE_BACKUP_S3_BUCKET, KAFSCALE_BACKUP_S3_ACCESS_KEY: {error}") from error
        yield store


async def mark_backup_bucket(backups: ObjectStore, log: ObjectStore, namespace: str) -> None:
    """Ensure that ``backups`` holds backups of only one cluster under ``namespace``. Call it before storing anything.

    Nothing is compared if the log has no cluster mark yet (a storage instance creates it) or does not answer, because
    backups matter most when the log's store has problems. Raises ConfigError, and the errors of ``backups``.
    """
    # A different key than the log's own mark, which would make this bucket look like the log's.
    key = paths.backup_mark_key(namespace)
    try:
        cluster = (await log.get(paths.cluster_mark_key(namespace))).body
    except (ObjectNotFound, Unavailable, Refused):
        return
    try:
        await backups.put_if_absent(key, cluster)
    except PreconditionFailed:
        found = (await backups.get(key)).body
        if found != cluster:
            raise ConfigError(
                f"KAFSCALE_BACKUP_S3_BUCKET: the backups under {namespace}/ are of cluster "
                f"{found.decode(errors='replace')}, but this is cluster {cluster.decode(errors='replace')}"
            ) from None
