"""How clients authenticate on a listener with SASL_SSL."""

from dataclasses import dataclass
from pathlib import Path

_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Login:
    """``ca`` is the file of the trusted CA, ``token`` that of a token for OAUTHBEARER, which replaces the password."""

    ca: Path
    mechanism: str
    user: str = ""
    password: str = ""
    token: Path | None = None


def in_json(login: Login | None) -> dict[str, str]:
    """Return what KafkaJS and franz-go need."""
    if login is None:
        return {}
    return {
        "ca": str(login.ca),
        "mechanism": login.mechanism,
        "user": login.user,
        "password": login.password,
        "token": login.token.read_text() if login.token else "",
    }


def java_properties(login: Login | None) -> dict[str, str]:
    """Return the properties of a Java client, which needs `java_options` too."""
    if login is None:
        return {}
    found = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(login.ca),
        "sasl.mechanism": login.mechanism,
    }
    if login.token:
        bearer = f"{_SECURITY}.oauthbearer"
        return found | {
            "sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{bearer}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": login.token.as_uri(),
        }
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    given = f'username="{login.user}" password="{login.password}"'
    return found | {"sasl.jaas.config": f"{_SECURITY}.{module} required {given};"}


def java_options(*tokens: Path | None) -> list[str]:
    """Return the options of a JVM whose clients may read these tokens."""
    urls = ",".join(token.as_uri() for token in tokens if token)
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"] if urls else []
