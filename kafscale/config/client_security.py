"""The settings by which clients are encrypted and authenticated on Kafka listeners."""

from dataclasses import dataclass

from kafscale.config.access import AccessSettings
from kafscale.config.listeners import ListenerSettings
from kafscale.config.passwords import read_password
from kafscale.config.settings import KIB, Parser, choice, integer, optional, setting, size, text, within
from kafscale.errors import ConfigError
from kafscale.security.scram import Mechanism

NONE, REQUESTED, REQUIRED = CLIENT_AUTH = ("none", "requested", "required")
PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *(mechanism.value for mechanism in Mechanism), OAUTHBEARER)
"""The SASL mechanisms that a listener can offer."""
LISTENER = "{listener}"
"""Stands for the name of the listener, in lower case, in the paths of certificates."""


def _parse_mechanisms(text_: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip().upper() for part in text_.split(",")))
    if not set(names) <= set(MECHANISMS):
        raise ValueError(text_)
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecuritySettings(ListenerSettings, AccessSettings):
    """TLS and SASL of the Kafka listeners. Times are in milliseconds."""

    tls_cert_file: str | None = setting(
        "KAFSCALE_TLS_CERT_FILE",
        default=None,
        parse=optional(text),
        doc="The certificate chain (PEM) of listeners with SSL or SASL_SSL. `{listener}` is replaced by the listener's "
        "name in lower case, so that each can have its own. Changed files are used for new connections within "
        "seconds. If a client names the advertised host of another listener by SNI, it gets the certificate of that "
        "listener.",
    )
    tls_key_file: str | None = setting(
        "KAFSCALE_TLS_KEY_FILE",
        default=None,
        parse=optional(text),
        doc="The private key (PEM, not encrypted) for KAFSCALE_TLS_CERT_FILE. `{listener}` is replaced too.",
    )
    tls_ca_file: str | None = setting(
        "KAFSCALE_TLS_CA_FILE",
        default=None,
        parse=optional(text),
        doc="The CA certificates (PEM) that are trusted to sign the certificates of clients. `{listener}` is replaced "
        "too.",
    )
    tls_client_auth: str = setting(
        "KAFSCALE_TLS_CLIENT_AUTH",
        default=NONE,
        parse=choice(*CLIENT_AUTH),
        doc="Kafka's ssl.client.auth. `required`: only clients with a certificate of KAFSCALE_TLS_CA_FILE are "
        "accepted. `requested`: clients without one are User:ANONYMOUS. On a listener with SSL, the certificate says "
        "who the client is; on one with SASL_SSL, SASL does.",
    )
    tls_min_version: str = setting(
        "KAFSCALE_TLS_MIN_VERSION",
        default="1.2",
        parse=choice("1.2", "1.3"),
        doc="The lowest version of TLS on listeners.",
    )
    tls_ciphers: str | None = setting(
        "KAFSCALE_TLS_CIPHERS",
        default=None,
        parse=optional(text),
        doc="The cipher suites of TLS 1.2, as a list for OpenSSL. If not set, OpenSSL's choice. Those of TLS 1.3 "
        "cannot be chosen.",
    )
    handshake_ms: int = setting(
        "KAFSCALE_HANDSHAKE_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="How long a client may take for the TLS handshake, and after it for SASL. Then its connection is closed.",
    )
    max_unauthenticated: int = setting(
        "KAFSCALE_MAX_UNAUTHENTICATED_CONNECTIONS",
        default=1000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of connections, on listeners with TLS or SASL, that have not completed the handshake "
        "or authentication. Further connections are closed immediately.",
    )
    max_unauthenticated_request_bytes: int = setting(
        "KAFSCALE_MAX_UNAUTHENTICATED_REQUEST_BYTES",
        default=64 * KIB,
        parse=within(size, 1 * KIB, 2**31 - 1),
        doc="The maximum size of a request of a client that is not authenticated yet, on listeners with SASL.",
    )
    sasl_mechanisms: tuple[str, ...] = setting(
        "KAFSCALE_SASL_ENABLED_MECHANISMS",
        default=tuple(mechanism.value for mechanism in Mechanism),
        parse=Parser(f"a list of {', '.join(MECHANISMS)}", _parse_mechanisms, ",".join),
        doc="The mechanisms of listeners with SASL. With PLAIN and OAUTHBEARER, clients send their passwords or "
        "tokens, so such a listener should have TLS. Users and their SCRAM credentials are the same for PLAIN and "
        "SCRAM. OAUTHBEARER needs the settings that begin with KAFSCALE_SASL_OAUTHBEARER_.",
    )
    sasl_max_reauth_ms: int = setting(
        "KAFSCALE_SASL_MAX_REAUTH_MS",
        default=0,
        parse=integer(0, 2**31 - 1),
        doc="Kafka's connections.max.reauth.ms: after this time, clients must authenticate again, or their connections "
        "are closed. 0: never. Clients with OAUTHBEARER must do so before their tokens expire in any case.",
    )

    bootstrap_user: str | None = setting(
        "KAFSCALE_BOOTSTRAP_USER",
        default=None,
        parse=optional(text),
        doc="The first user of a cluster, which a gateway creates at its start if it does not exist. A later change of "
        "its password, or of these settings, does not affect a user that exists.",
    )
    bootstrap_password: str = setting(
        "KAFSCALE_BOOTSTRAP_PASSWORD",
        default="",
        parse=text,
        doc="The password of KAFSCALE_BOOTSTRAP_USER.",
        secret=True,
    )
    bootstrap_password_file: str | None = setting(
        "KAFSCALE_BOOTSTRAP_PASSWORD_FILE",
        default=None,
        parse=optional(text),
        doc="A file with the password of KAFSCALE_BOOTSTRAP_USER, instead of KAFSCALE_BOOTSTRAP_PASSWORD. A line break "
        "at its end is not part of the password.",
    )

    def first_password(self) -> bytes:
        """Return the password of the first user; empty if there is none. Raises ConfigError if its file is invalid."""
        if self.bootstrap_password_file is None:
            return self.bootstrap_password.encode()
        return read_password("KAFSCALE_BOOTSTRAP_PASSWORD_FILE", self.bootstrap_password_file)

    def __post_init__(self) -> None:
        passwords = (self.bootstrap_password, self.bootstrap_password_file)
        if self.bootstrap_user is not None and sum(map(bool, passwords)) != 1:
            raise ConfigError(
                "KAFSCALE_BOOTSTRAP_USER needs either KAFSCALE_BOOTSTRAP_PASSWORD or KAFSCALE_BOOTSTRAP_PASSWORD_FILE"
            )
        # Resolved here too, so that an invalid listener is reported before the process does anything.
        encrypted = [each for each in self.resolve() if each.encrypted]
        if not encrypted:
            return
        for env, value in (("CERT", self.tls_cert_file), ("KEY", self.tls_key_file)):
            if value is None:
                raise ConfigError(f"listener {encrypted[0].name} has TLS; set KAFSCALE_TLS_{env}_FILE")
        if self.tls_client_auth != NONE and self.tls_ca_file is None:
            raise ConfigError(f"KAFSCALE_TLS_CLIENT_AUTH={self.tls_client_auth} needs KAFSCALE_TLS_CA_FILE")
