"""The addresses on which a service listens and is reached by others, and the TTL of its lease.

Nothing is bound or resolved here, except for the name of this machine if an advertised address contains OWN_NAME.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafscale.config.listeners import OWN_NAME, is_anywhere, parse_address, with_own_name
from kafscale.config.settings import Parser, integer, optional, setting
from kafscale.errors import ConfigError

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port. An empty ``host`` means all interfaces. Port 0: the system chooses. Hosts have no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def anywhere(self) -> bool:
        """Whether the host means all interfaces."""
        return is_anywhere(self.host)

    @property
    def bindable(self) -> str:
        """The address in gRPC's form for listening, which does not allow an empty host."""
        return str(self if self.host else replace(self, host="::"))


@dataclass(frozen=True, slots=True)
class DefaultAddresses:
    """The default addresses of a service. They differ between services so that all of them can run on one host."""

    rpc: Address
    http: Address


DEFAULTS = {
    "gateway": DefaultAddresses(Address(HOST, 9094), Address(HOST, 9093)),
    "storage": DefaultAddresses(Address(HOST, 9095), Address(HOST, 9105)),
    "indexer": DefaultAddresses(Address(HOST, 9096), Address(HOST, 9106)),
    "coordinator": DefaultAddresses(Address(HOST, 9097), Address(HOST, 9107)),
}
"""The default addresses of the services that call each other."""
HTTP_DEFAULTS = {
    **{name: addresses.http for name, addresses in DEFAULTS.items()},
    "operator": Address(HOST, 9108),
    "console": Address(HOST, 9109),
}


def _parse(value: str) -> Address:
    try:
        return Address(*parse_address("", value))
    except ConfigError as error:
        raise ValueError(value) from error


def _parse_advertised(value: str) -> Address:
    return _parse(with_own_name(value))


_ACCEPTS = "`host:port`; an empty host means all interfaces; IPv6 addresses need brackets"
_address = Parser(_ACCEPTS, _parse)
_path = Parser("a path", Path)
_advertised = Parser(f"{_ACCEPTS}; `{OWN_NAME}` is this machine's name", _parse_advertised)


def _by_service(addresses: Mapping[str, Address]) -> str:
    return ", ".join(f"{name} {address}" for name, address in addresses.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """The settings of every process that registers in the metadata store."""

    lease_ttl_seconds: int = setting(
        "KAFSCALE_LEASE_TTL_SECONDS",
        default=10,
        parse=integer(2, 300),
        doc="The TTL of a process's lease. A process that does not renew its lease for this long is considered dead.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The settings of every process for /healthz, /readyz and /metrics."""

    http_addr: Address | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_HTTP_ADDR",
        default=None,
        parse=optional(_address),
        doc="The address on which this process serves its health and metrics. By default, each service has a different "
        "port.",
        default_text=_by_service(HTTP_DEFAULTS),
    )
    http_max_connections: int = setting(
        "KAFSCALE_HTTP_MAX_CONNECTIONS",
        default=64,
        parse=integer(1, 10_000),
        doc="The maximum number of connections to KAFSCALE_HTTP_ADDR. For a further one, the connection whose client "
        "has been silent for the longest time is closed.",
    )
    http_tls_cert_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_HTTP_TLS_CERT_FILE",
        default=None,
        parse=optional(_path),
        doc="The certificate chain (PEM) of KAFSCALE_HTTP_ADDR. If set, the port accepts only TLS. Changed files are "
        "used for new connections within seconds.",
    )
    http_tls_key_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_HTTP_TLS_KEY_FILE",
        default=None,
        parse=optional(_path),
        doc="The private key (PEM, not encrypted) for KAFSCALE_HTTP_TLS_CERT_FILE.",
    )
    http_tls_ca_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_HTTP_TLS_CA_FILE",
        default=None,
        parse=optional(_path),
        doc="If set, only clients with a certificate signed by a CA in this file (PEM) are accepted.",
    )

    def __post_init__(self) -> None:
        if (self.http_tls_cert_file is None) != (self.http_tls_key_file is None):
            raise ConfigError("KAFSCALE_HTTP_TLS_CERT_FILE and KAFSCALE_HTTP_TLS_KEY_FILE must be set together")
        if self.http_tls_ca_file is not None and self.http_tls_cert_file is None:
            raise ConfigError("KAFSCALE_HTTP_TLS_CA_FILE is set without KAFSCALE_HTTP_TLS_CERT_FILE")

    def address(self, service: str) -> Address:
        return self.http_addr or HTTP_DEFAULTS[service]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(LeaseSettings):
    """The settings of every service in a separate process for its communication with the others."""

    rpc_addr: Address | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_ADDR",
        default=None,
        parse=optional(_address),
        doc="The address on which this process accepts calls from other services. Storage also accepts calls from "
        "Spark jobs, and gateways accept admin calls. The one-process mode accepts both on storage's address. By "
        "default, each service has a different port.",
        default_text=_by_service({name: addresses.rpc for name, addresses in DEFAULTS.items()}),
    )
    rpc_advertised_addr: Address | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_ADVERTISED_ADDR",
        default=None,
        parse=optional(_advertised),
        doc="The `host:port` at which other services reach this process. If not set, KAFSCALE_RPC_ADDR, which then "
        f"must not be all interfaces. Keep it the same after a restart, otherwise partitions move. `{OWN_NAME}:9095` "
        "allows many containers or pods to share one setting.",
    )
    start_patience_ms: int = setting(
        "KAFSCALE_START_PATIENCE_MS",
        default=30_000,
        parse=integer(0, 3_600_000),
        doc="How long a process that is starting waits for etcd, and then for S3, to become available. After that, it "
        "exits with status 1.",
    )

    def __post_init__(self) -> None:
        advertised = self.rpc_advertised_addr
        if advertised is not None and (advertised.anywhere or not advertised.port):
            raise ConfigError(f"KAFSCALE_RPC_ADVERTISED_ADDR = {str(advertised)!r} needs both a host and a port")
        if advertised is None and self.rpc_addr is not None and self.rpc_addr.anywhere:
            raise ConfigError(
                "KAFSCALE_RPC_ADDR is all interfaces; set KAFSCALE_RPC_ADVERTISED_ADDR to an address that other "
                "services can connect to"
            )

    def rpc(self, service: str) -> Address:
        return self.rpc_addr or DEFAULTS[service].rpc

    def advertised(self, service: str, bound_port: int) -> str:
        """Return the advertised address. ``bound_port``: the port that was bound for `rpc`."""
        return str(self.rpc_advertised_addr or replace(self.rpc(service), port=bound_port))
