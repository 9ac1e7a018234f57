"""The settings with which the `kafscale` command and the console connect to Kafka listeners."""

from dataclasses import dataclass

from kafscale.config.client_security import PLAIN
from kafscale.config.listeners import PLAINTEXT, PROTOCOLS, SASL_PLAINTEXT, SASL_SSL, SSL
from kafscale.config.passwords import read_password
from kafscale.config.settings import Parser, choice, optional, setting, text
from kafscale.errors import ConfigError
from kafscale.security.scram import Mechanism

MECHANISMS = (PLAIN, *(mechanism.value for mechanism in Mechanism))
"""The SASL mechanisms with a user and a password."""


def _parse_name(text_: str) -> str:
    if "\x00" in text_:
        raise ValueError(text_)
    return text_


_name: Parser[str] = Parser("text", _parse_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaClientSettings:
    """TLS and SASL of `kafscale produce`, `kafscale consume` and the console. Options of the command override them."""

    protocol: str = setting(
        "KAFSCALE_CLIENT_SECURITY_PROTOCOL",
        default=PLAINTEXT,
        parse=choice(*PROTOCOLS),
        doc="The security protocol of the listeners to which `kafscale produce`, `kafscale consume` and the console "
        "connect.",
    )
    ca_file: str | None = setting(
        "KAFSCALE_CLIENT_CA_FILE",
        default=None,
        parse=optional(text),
        doc="The CA certificates (PEM) that are trusted to sign the certificates of listeners. If not set, those of "
        "the system.",
    )
    cert_file: str | None = setting(
        "KAFSCALE_CLIENT_CERT_FILE",
        default=None,
        parse=optional(text),
        doc="The certificate chain (PEM) for listeners that ask for client certificates.",
    )
    key_file: str | None = setting(
        "KAFSCALE_CLIENT_KEY_FILE",
        default=None,
        parse=optional(text),
        doc="The private key (PEM, not encrypted) for KAFSCALE_CLIENT_CERT_FILE.",
    )
    mechanism: str = setting(
        "KAFSCALE_CLIENT_MECHANISM",
        default=Mechanism.SHA_512.value,
        parse=choice(*MECHANISMS),
        doc="The SASL mechanism. With PLAIN, the password is sent, so it needs SASL_SSL.",
    )
    user: str | None = setting(
        "KAFSCALE_CLIENT_USER",
        default=None,
        parse=optional(_name),
        doc="The user, for SASL_PLAINTEXT and SASL_SSL.",
    )
    password: str = setting(
        "KAFSCALE_CLIENT_PASSWORD",
        default="",
        parse=_name,
        doc="The password of KAFSCALE_CLIENT_USER.",
        secret=True,
    )
    password_file: str | None = setting(
        "KAFSCALE_CLIENT_PASSWORD_FILE",
        default=None,
        parse=optional(text),
        doc="A file with the password, instead of KAFSCALE_CLIENT_PASSWORD. A line break at its end is not part of the "
        "password.",
    )

    @property
    def encrypted(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def authenticated(self) -> bool:
        """Whether SASL is used."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def client_password(self) -> bytes:
        """Return the password as UTF-8. Raises ConfigError if its file is invalid."""
        if self.password_file is None:
            return self.password.encode()
        return read_password("KAFSCALE_CLIENT_PASSWORD_FILE", self.password_file)

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("KAFSCALE_CLIENT_CERT_FILE and KAFSCALE_CLIENT_KEY_FILE must be set together")
        for env, value, used in (
            ("CA_FILE", self.ca_file, self.encrypted),
            ("CERT_FILE", self.cert_file, self.encrypted),
            ("USER", self.user, self.authenticated),
            ("PASSWORD", self.password, self.authenticated),
            ("PASSWORD_FILE", self.password_file, self.authenticated),
        ):
            if value and not used:
                raise ConfigError(
                    f"KAFSCALE_CLIENT_{env} is set, but not used with KAFSCALE_CLIENT_SECURITY_PROTOCOL={self.protocol}"
                )
        passwords = (self.password, self.password_file)
        if self.authenticated and (self.user is None or sum(map(bool, passwords)) != 1):
            raise ConfigError(
                f"KAFSCALE_CLIENT_SECURITY_PROTOCOL={self.protocol} needs KAFSCALE_CLIENT_USER, and either "
                "KAFSCALE_CLIENT_PASSWORD_FILE or KAFSCALE_CLIENT_PASSWORD"
            )
