"""The settings by which bearer tokens are verified: of clients with OAUTHBEARER, and of callers over gRPC."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from kafscale.config.settings import Parser, integer, optional, setting, text
from kafscale.errors import ConfigError


def _parse_names(text_: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text_.split(",")))
    if not all(names):
        raise ValueError(text_)
    return names


# Without slots, so that a class can also inherit from others with fields.
@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """The issuer whose tokens are accepted, and what they must say."""

    token_keys_url: str | None = setting(
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL",
        default=None,
        parse=optional(text),
        doc="Kafka's sasl.oauthbearer.jwks.endpoint.url: where the issuer of tokens publishes its keys as a JSON Web "
        "Key Set, `https://HOST/PATH`, or a file that contains them, `file:///PATH`. Required for OAUTHBEARER. With "
        "KAFSCALE_ACLS, callers over gRPC can present tokens too.",
    )
    token_keys_refresh_ms: int = setting(
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS",
        default=3_600_000,
        parse=integer(1000, 2**31 - 1),
        doc="Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms: how often the keys are read again. They are also read "
        "when a token has an unknown key id, at most once in 10 seconds.",
    )
    token_keys_ca_file: str | None = setting(
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_CA_FILE",
        default=None,
        parse=optional(text),
        doc="The CA certificates (PEM) that are trusted to sign the certificate of "
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL. If not set, those of the Python package certifi.",
    )
    token_issuer: str | None = setting(
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER",
        default=None,
        parse=optional(text),
        doc="Kafka's sasl.oauthbearer.expected.issuer: the claim `iss` of tokens. Required with "
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.",
    )
    token_audiences: tuple[str, ...] = setting(
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE",
        default=(),
        parse=Parser("a list of audiences, separated by commas", _parse_names, ",".join),
        doc="Kafka's sasl.oauthbearer.expected.audience: the claim `aud` of tokens must contain one of these. Required "
        "with KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.",
    )
    token_scope: str = setting(
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_SCOPE",
        default="",
        parse=text,
        doc="A scope that tokens must have. If not set, none is required.",
    )
    token_scope_claim: str = setting(
        "KAFSCALE_SASL_OAUTHBEARER_SCOPE_CLAIM_NAME",
        default="scope",
        parse=text,
        doc="Kafka's sasl.oauthbearer.scope.claim.name: the claim with the scopes of a token.",
    )
    token_user_claim: str = setting(
        "KAFSCALE_SASL_OAUTHBEARER_SUB_CLAIM_NAME",
        default="sub",
        parse=text,
        doc="Kafka's sasl.oauthbearer.sub.claim.name: the claim with the name of the user.",
    )
    token_skew_seconds: int = setting(
        "KAFSCALE_SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS",
        default=30,
        parse=integer(0, 600),
        doc="Kafka's sasl.oauthbearer.clock.skew.seconds: by how much the clocks of the issuer and of this machine may "
        "differ. A token is accepted for this time after its expiry.",
    )

    @property
    def verifies_tokens(self) -> bool:
        """Whether an issuer is set, without which no token can be verified."""
        return self.token_keys_url is not None

    @property
    def token_keys_path(self) -> str | None:
        """The file with the keys of the issuer, or None if they are at an HTTPS endpoint."""
        url = urlsplit(self.token_keys_url or "")
        return unquote(url.path) if url.scheme == "file" else None

    def __post_init__(self) -> None:
        if self.token_keys_url is not None and not _is_source(self.token_keys_url):
            # Without the value, because the URL may contain a password.
            raise ConfigError(
                "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL must be https://HOST/PATH without a user name, or "
                "file:///PATH (value not shown)"
            )
        required = {
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": self.token_keys_url,
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": self.token_issuer,
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": self.token_audiences,
        }
        given = [env for env, value in required.items() if value]
        missing = [env for env, value in required.items() if not value]
        if given and missing:
            raise ConfigError(f"{given[0]} also needs {missing[0]}")


def _is_source(text_: str) -> bool:
    """Whether this is the URL of an HTTPS endpoint or of a file."""
    try:
        url = urlsplit(text_)
        port = url.port
    except ValueError:
        return False
    if not text_.isascii() or not text_.isprintable() or " " in text_ or url.fragment:
        return False
    if url.scheme == "file":
        return not url.netloc and url.path.startswith("/")
    return url.scheme == "https" and bool(url.hostname) and "@" not in url.netloc and port != 0
