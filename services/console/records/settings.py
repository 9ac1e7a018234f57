"""The settings of the console's pages of records."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from kafscale.config.admin_access import servers
from kafscale.config.passwords import read_password
from kafscale.config.settings import KIB, MIB, Parser, boolean, integer, optional, setting, size, text, within
from kafscale.errors import ConfigError

LARGEST_RATE = 1000


def _parse_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(value)
    if parts.query or parts.fragment or not value.isascii() or parts.port == 0:
        raise ValueError(value)
    return value.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    """Where the console reads and writes records, by which schemas it decodes them, and its limits."""

    records: bool = setting(
        "KAFSCALE_CONSOLE_RECORDS",
        default=True,
        parse=boolean,
        doc="Whether the console shows and writes records. `false`, for example, if they contain personal data.",
    )
    bootstrap: tuple[str, ...] = setting(
        "KAFSCALE_CONSOLE_BOOTSTRAP",
        default=(),
        parse=servers,
        doc="The Kafka listeners of gateways to which the console connects first. If not set, those that the Admin "
        "service reports: the first one of each gateway. The settings of [Kafka "
        "clients](#kafka-clients-of-the-kafscale-command) say how the console connects, and with which login.",
    )
    read_ms: int = setting(
        "KAFSCALE_CONSOLE_READ_MS",
        default=10_000,
        parse=integer(100, 300_000),
        doc="How long one read of records may take. It then ends with what was found, and can be continued.",
    )
    read_bytes: int = setting(
        "KAFSCALE_CONSOLE_READ_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB, 1024 * MIB),
        doc="How many bytes of batches one read of records may fetch. It then ends with what was found, and can be "
        "continued.",
    )
    fetch_bytes: int = setting(
        "KAFSCALE_CONSOLE_FETCH_BYTES",
        default=MIB,
        parse=within(size, 16 * KIB, 64 * MIB),
        doc="How many bytes of batches a read of records fetches at once from each gateway. A gateway exceeds it for a "
        "larger batch.",
    )
    decoded_bytes: int = setting(
        "KAFSCALE_CONSOLE_DECODED_BYTES",
        default=16 * MIB,
        parse=within(size, MIB, 256 * MIB),
        doc="The largest batch, without compression, that the console decodes. A larger one is left out, which is "
        "shown.",
    )
    max_reads: int = setting(
        "KAFSCALE_CONSOLE_MAX_READS",
        default=8,
        parse=integer(1, 1000),
        doc="How many records are read or written at the same time, by all users. Live tails are limited by "
        "KAFSCALE_CONSOLE_MAX_LIVE.",
    )
    max_fetches: int = setting(
        "KAFSCALE_CONSOLE_MAX_FETCHES",
        default=4,
        parse=integer(1, 1000),
        doc="How many reads and live tails, of all users, fetch batches at the same time; others wait. Each fetches "
        "from all gateways at once. So the memory for batches is up to about 3 times this number, times the number of "
        "gateways, times the largest of KAFSCALE_CONSOLE_FETCH_BYTES, KAFSCALE_CONSOLE_TAIL_BYTES and a batch.",
    )
    max_rows: int = setting(
        "KAFSCALE_CONSOLE_MAX_ROWS",
        default=500,
        parse=integer(1, 10_000),
        doc="The maximum number of records in one answer.",
    )
    row_bytes: int = setting(
        "KAFSCALE_CONSOLE_ROW_BYTES",
        default=KIB,
        parse=within(size, 64, 64 * KIB),
        doc="How much of a key, a value or the headers is shown in a list of records.",
    )
    record_bytes: int = setting(
        "KAFSCALE_CONSOLE_RECORD_BYTES",
        default=MIB,
        parse=within(size, 4 * KIB, 16 * MIB),
        doc="How much of a key or value is shown when one record is opened. Larger ones are not decoded by a schema "
        "or as JSON, but can be downloaded.",
    )
    tail_bytes: int = setting(
        "KAFSCALE_CONSOLE_TAIL_BYTES",
        default=256 * KIB,
        parse=within(size, 16 * KIB, 64 * MIB),
        doc="How many bytes of batches a live tail fetches at once from each gateway, at most twice a second. A "
        "gateway exceeds it for a larger batch.",
    )
    tail_rate: int = setting(
        "KAFSCALE_CONSOLE_TAIL_RATE",
        default=200,
        parse=integer(1, LARGEST_RATE),
        doc="The maximum number of records that a live tail shows in a second. Users choose it up to this number.",
    )
    registry_url: str | None = setting(
        "KAFSCALE_CONSOLE_REGISTRY_URL",
        default=None,
        parse=optional(Parser("an http or https URL without user, query and fragment", _parse_url)),
        doc="The schema registry (with the API of Confluent's) by which keys and values in Avro, JSON Schema and "
        "Protobuf are decoded. If not set, they are shown as bytes.",
    )
    registry_user: str | None = setting(
        "KAFSCALE_CONSOLE_REGISTRY_USER",
        default=None,
        parse=optional(text),
        doc="The user for the registry, by HTTP basic authentication.",
    )
    registry_password_file: str | None = setting(
        "KAFSCALE_CONSOLE_REGISTRY_PASSWORD_FILE",
        default=None,
        parse=optional(text),
        doc="A file with the password of KAFSCALE_CONSOLE_REGISTRY_USER. A line break at its end is not part of the "
        "password. It is read once, at the start.",
    )
    registry_ca_file: str | None = setting(
        "KAFSCALE_CONSOLE_REGISTRY_CA_FILE",
        default=None,
        parse=optional(text),
        doc="The CA certificates (PEM) that are trusted to sign the certificate of the registry. If not set, those of "
        "the Python package certifi.",
    )
    registry_ms: int = setting(
        "KAFSCALE_CONSOLE_REGISTRY_MS",
        default=3000,
        parse=integer(100, 60_000),
        doc="The timeout of a request to the registry.",
    )
    registry_schemas: int = setting(
        "KAFSCALE_CONSOLE_REGISTRY_SCHEMAS",
        default=500,
        parse=integer(1, 100_000),
        doc="How many schemas, each of up to 1 MiB, are kept in memory.",
    )

    def __post_init__(self) -> None:
        if (self.registry_user is None) != (self.registry_password_file is None):
            raise ConfigError(
                "KAFSCALE_CONSOLE_REGISTRY_USER and KAFSCALE_CONSOLE_REGISTRY_PASSWORD_FILE must be set together"
            )
        if self.registry_url is None and (self.registry_user is not None or self.registry_ca_file is not None):
            raise ConfigError("settings of the registry need KAFSCALE_CONSOLE_REGISTRY_URL")

    def registry_password(self) -> bytes:
        """Return the password for the registry; empty if there is none. Raises ConfigError if its file is invalid."""
        if self.registry_password_file is None:
            return b""
        return read_password("KAFSCALE_CONSOLE_REGISTRY_PASSWORD_FILE", self.registry_password_file)
