"""The settings of Kafka listeners that can offer SASL OAUTHBEARER."""

from dataclasses import dataclass

from kafscale.config.client_security import OAUTHBEARER, ClientSecuritySettings
from kafscale.config.tokens import TokenSettings
from kafscale.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthbearerSettings(TokenSettings, ClientSecuritySettings):
    """The Kafka listeners, with those settings that OAUTHBEARER needs."""

    @property
    def uses_tokens(self) -> bool:
        """Whether clients of Kafka listeners, or callers over gRPC, can be known by a token."""
        return self.acls or OAUTHBEARER in self.sasl_mechanisms

    def __post_init__(self) -> None:
        ClientSecuritySettings.__post_init__(self)
        TokenSettings.__post_init__(self)
        if OAUTHBEARER in self.sasl_mechanisms and not self.verifies_tokens:
            raise ConfigError(
                "KAFSCALE_SASL_ENABLED_MECHANISMS has OAUTHBEARER; set KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL"
            )
