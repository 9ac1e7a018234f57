"""Connections to brokers on behalf of users: each with the rights that its user has."""

import re
from http import HTTPStatus

from kafscale.config.client_security import OAUTHBEARER
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.listeners import SASL_PLAINTEXT, parse_address
from kafscale.errors import Unavailable
from kafscale.kafka_client.bootstrap import reported_listeners
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.connection import Address, Login, Security
from kafscale.kafka_client.security import security_of
from kafscale.rpc.admin import CLUSTER_STATUS
from kafscale.v1 import admin_pb2 as pb
from services.console.gateways import Gateways
from services.console.hosts import is_loopback
from services.console.records.errors import RecordsRefused

_SIGNED = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""A JSON Web Token."""


class BrokerAccess:
    """``own_token``: what the console itself presents to gateways. Sessions with it use the login of the settings.

    Others present their token with OAUTHBEARER. Raises ConfigError if a file of the settings is invalid.
    """

    def __init__(
        self,
        bootstrap: tuple[str, ...],
        client: KafkaClientSettings,
        gateways: Gateways,
        *,
        own_token: str,
        seconds: float,
    ) -> None:
        self._bootstrap = [parse_address("", each) for each in bootstrap]
        self._own = security_of(client)
        self.protocol = client.protocol
        """The security protocol, as clients name it."""
        # SASL_PLAINTEXT is never a default, so whoever sets it accepts that tokens can be read on the way.
        self._tokens_anywhere = client.encrypted or client.protocol == SASL_PLAINTEXT
        self._gateways = gateways
        self._own_token = own_token
        self._seconds = seconds

    async def addresses(self, token: str) -> list[Address]:
        """Return the listeners to connect to. Raises StatusError, and Unavailable if there is none."""
        if self._bootstrap:
            return self._bootstrap
        status = await self._gateways.read(CLUSTER_STATUS, pb.ClusterStatusRequest(), token)
        found = reported_listeners(status.members)
        if not found:
            raise Unavailable("no gateway reports a Kafka listener; set KAFSCALE_CONSOLE_BOOTSTRAP")
        return found

    async def brokers(self, token: str) -> Brokers:
        """Return the brokers for the user with this token; nothing is connected yet.

        Raises RecordsRefused if it is no token for listeners, or would be sent to another host without encryption, and
        what `addresses` does.
        """
        security = self._own
        if token != self._own_token:
            # Another secret than a token of an issuer is none of a listener's business.
            if not _SIGNED.fullmatch(token):
                text = (
                    "this token is not of an OAuth issuer; the console needs KAFSCALE_ADMIN_TOKEN to know it as its own"
                )
                raise RecordsRefused(HTTPStatus.FORBIDDEN, text)
            security = Security(self._own.tls, Login(OAUTHBEARER, "", token.encode()))
        addresses = await self.addresses(token)
        if security is self._own or self._tokens_anywhere:
            return Brokers(addresses, security, seconds=self._seconds)
        try:
            for address in addresses:
                _check_loopback(address)
        except Unavailable as error:
            raise RecordsRefused(HTTPStatus.FORBIDDEN, str(error)) from None
        return Brokers(addresses, security, seconds=self._seconds, check=_check_loopback)


def _check_loopback(address: Address) -> None:
    """Raise Unavailable unless the address is on this machine."""
    host, port = address
    if not is_loopback(host):
        raise Unavailable(
            f"your token would be sent to {host}:{port} without encryption; the console needs "
            "KAFSCALE_CLIENT_SECURITY_PROTOCOL=SSL or SASL_SSL, or SASL_PLAINTEXT to send it nevertheless"
        )
