"""The settings of etcd, the metadata store that services in separate processes share, and its opening."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio

from kafscale import paths
from kafscale.config.settings import GIB, MIB, Parser, boolean, integer, optional, setting, size, text, within
from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.rpc.tls import RpcTls

_path = Parser("a path", Path)
_ENDPOINT = re.compile(r"(?:(https?)://)?((?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5}))/?")
_PAUSE_SECONDS = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``address``: ``host:port``. ``scheme``: http, https, or empty if the setting has none."""

    address: str
    scheme: str = ""


def _parse_endpoints(value: str) -> tuple[Endpoint, ...]:
    endpoints = []
    for item in value.split(","):
        found = _ENDPOINT.fullmatch(item.strip())
        if found is None or not 0 < int(found[3]) < 65536:
            raise ValueError(item)
        endpoints.append(Endpoint(found[2], found[1] or ""))
    return tuple(endpoints)


_endpoints = Parser(
    "`host:port`, `http://host:port` or `https://host:port`, or several separated by commas",
    _parse_endpoints,
    lambda value: ",".join(f"{item.scheme}://{item.address}" if item.scheme else item.address for item in value),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """The settings of etcd for every service that runs in a separate process."""

    endpoints: tuple[Endpoint, ...] = setting(
        "KAFSCALE_ETCD_ENDPOINTS",
        default=(),
        parse=_endpoints,
        doc="The addresses of etcd's members. For addresses without `http` or `https`, TLS is used if "
        "KAFSCALE_ETCD_TLS_CA_FILE is set.",
    )
    username: str = setting(
        "KAFSCALE_ETCD_USERNAME",
        default="",
        parse=text,
        doc="The etcd user. If not set, etcd is used without authentication.",
    )
    password: str = setting(
        "KAFSCALE_ETCD_PASSWORD", default="", parse=text, doc="The password of KAFSCALE_ETCD_USERNAME.", secret=True
    )
    tls_ca_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_ETCD_TLS_CA_FILE",
        default=None,
        parse=optional(_path),
        doc="The CA certificates (PEM) that are trusted to sign etcd's certificate. Changed files are used for new "
        "connections.",
    )
    tls_cert_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_ETCD_TLS_CERT_FILE",
        default=None,
        parse=optional(_path),
        doc="This process's certificate chain (PEM), if etcd requires client certificates.",
    )
    tls_key_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_ETCD_TLS_KEY_FILE",
        default=None,
        parse=optional(_path),
        doc="The private key (PEM, not encrypted) for KAFSCALE_ETCD_TLS_CERT_FILE.",
    )
    timeout_ms: int = setting(
        "KAFSCALE_ETCD_TIMEOUT_MS",
        default=5_000,
        parse=integer(100, 600_000),
        doc="The timeout of one operation. If a member does not answer within its share of this time, the next member "
        "is tried.",
    )
    history_ms: int = setting(
        "KAFSCALE_ETCD_HISTORY_MS",
        default=300_000,
        parse=integer(60_000, 604_800_000),
        doc="Revisions older than this are compacted, which requires etcd's root role. Without that role, use etcd's "
        "own `--auto-compaction`. A watcher that was disconnected for longer reads all state again. If more than half "
        "of etcd's quota is in use, less history is kept. See docs/guides/etcd.md.",
    )
    quota_bytes: int = setting(
        "KAFSCALE_ETCD_QUOTA_BYTES",
        default=2 * GIB,
        parse=within(size, 1 * MIB, 1024 * GIB),
        doc="The value of etcd's `--quota-backend-bytes`. It is needed for etcd releases before 3.6, which do not "
        "report their quota. For later releases, the reported quota is used.",
    )
    recover_space: bool = setting(
        "KAFSCALE_ETCD_RECOVER_SPACE",
        default=True,
        parse=boolean,
        doc="Whether to recover from etcd's NOSPACE alarm: compact all history, defragment the members one by one, and "
        "disarm the alarm. This requires etcd's root role. See docs/guides/etcd.md.",
    )

    def __post_init__(self) -> None:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("KAFSCALE_ETCD_TLS_CERT_FILE and KAFSCALE_ETCD_TLS_KEY_FILE must be set together")
        if bool(self.username) != bool(self.password):
            raise ConfigError("KAFSCALE_ETCD_USERNAME and KAFSCALE_ETCD_PASSWORD must be set together")
        if self.tls_ca_file is None:
            if self.tls_cert_file is not None:
                raise ConfigError("KAFSCALE_ETCD_TLS_CERT_FILE is set without KAFSCALE_ETCD_TLS_CA_FILE")
            if any(endpoint.scheme == "https" for endpoint in self.endpoints):
                raise ConfigError("KAFSCALE_ETCD_ENDPOINTS has https://, but KAFSCALE_ETCD_TLS_CA_FILE is not set")
        elif any(endpoint.scheme == "http" for endpoint in self.endpoints):
            raise ConfigError("KAFSCALE_ETCD_ENDPOINTS has http://, but KAFSCALE_ETCD_TLS_CA_FILE is set")

    def config(self) -> EtcdConfig:
        """Return the client's config. Raises ConfigError if no endpoint is set."""
        if not self.endpoints:
            raise ConfigError("KAFSCALE_ETCD_ENDPOINTS is not set")
        tls = None
        if self.tls_ca_file is not None:
            tls = RpcTls(ca_file=self.tls_ca_file, cert_file=self.tls_cert_file, key_file=self.tls_key_file)
        return EtcdConfig(
            endpoints=tuple(endpoint.address for endpoint in self.endpoints),
            username=self.username,
            password=self.password,
            tls=tls,
            timeout_seconds=self.timeout_ms / 1000,
        )


@asynccontextmanager
async def open_etcd_store(
    settings: EtcdSettings, namespace: str, *, random: Callable[[], float], patience: float = 30.0
) -> AsyncIterator[EtcdMetadataStore]:
    """Open the store that ``settings`` describe, after checking that it answers and that this user may read.

    ``random`` (0 to 1) randomizes the choice of members and the pauses. ``patience``: seconds to wait for etcd to come
    up. The caller must keep etcd from filling up (`kafscale.metadata.compaction.Upkeep`). Raises ConfigError, which
    names the invalid settings, or Unavailable if etcd does not answer.
    """
    async with open_etcd(settings.config(), random=random) as store:
        deadline = trio.current_time() + patience
        while True:
            try:
                await store.get(paths.cluster_key(namespace))
                status = await store.status()
                break
            except Refused as error:
                raise ConfigError(f"KAFSCALE_ETCD_USERNAME, KAFSCALE_ETCD_PASSWORD: {error}") from error
            except Unavailable as error:
                if trio.current_time() >= deadline:
                    raise
                _log.info("waiting for etcd", error=str(error))
                await trio.sleep(_PAUSE_SECONDS)
        _log.info("connected to etcd", version=status.version, database_bytes=status.database_bytes)
        if status.problems:
            _log.warning("etcd reports problems", problems=status.problems)
        yield store
