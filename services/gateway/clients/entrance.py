"""Finds out who connects: TLS handshakes, client certificates, and which listeners need SASL."""

from collections.abc import Callable

import structlog
import trio

from kafscale.config.client_security import ClientSecuritySettings
from kafscale.config.listeners import Listener
from kafscale.security.principals import ANONYMOUS, NoRuleApplies
from services.gateway.access.authentication import Authentication, Authenticator
from services.gateway.access.tls import ServerTls
from services.gateway.clients.connection import Stream
from services.gateway.clients.tls_stream import TlsStream

_LOGGED_EVERY = 1.0
"""Seconds between log lines about failed handshakes, because anyone can cause many."""


_log = structlog.get_logger(__name__)


class Entrance:
    """The way in, for the connections of all listeners. `run` must be running."""

    def __init__(
        self, listeners: tuple[Listener, ...], settings: ClientSecuritySettings, authenticator: Authenticator
    ) -> None:
        """Raises a ConfigError if a certificate of a listener cannot be used."""
        self._settings = settings
        self._authenticator = authenticator
        self._tls = ServerTls(settings, listeners)
        self._unknown = 0
        self._failed = 0
        self._logged_at = -_LOGGED_EVERY

    async def run(self) -> None:
        """Notice changed certificates until cancelled."""
        await self._tls.run()

    def is_full(self, listener: Listener) -> bool:
        """Whether too many clients of listeners with TLS or SASL are not known yet."""
        return (listener.encrypted or listener.by_sasl) and self._unknown >= self._settings.max_unauthenticated

    def enter(self) -> Callable[[], None]:
        """Count a client that is not known yet. Return a function to be called when it is, or has gone, or both."""
        counted = True
        self._unknown += 1

        def leave() -> None:
            nonlocal counted
            self._unknown -= counted
            counted = False

        return leave

    async def admit(
        self, stream: trio.SocketStream, listener: Listener, peer: str, host: str
    ) -> tuple[Stream, Authentication] | None:
        """Do the TLS handshake if the listener has TLS. Return what to use from now on, or None if it failed."""
        secured: Stream = stream
        principal = ANONYMOUS
        if listener.encrypted:
            secured = TlsStream(stream, self._tls.context(listener))
            try:
                with trio.fail_after(self._settings.handshake_ms / 1000):
                    await secured.do_handshake()
                if not listener.by_sasl:
                    principal = self._tls.principal(secured.peer_certificate())
            except (trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError, NoRuleApplies) as error:
                self._log_failure(listener, peer, error)
                await trio.aclose_forcefully(stream)
                return None
        if not listener.by_sasl:
            return secured, Authentication(principal)
        return secured, Authentication(
            None,
            host=host,
            mechanisms=self._settings.sasl_mechanisms,
            session_ms=self._settings.sasl_max_reauth_ms,
            authenticator=self._authenticator,
        )

    def _log_failure(self, listener: Listener, peer: str, error: Exception) -> None:
        self._failed += 1
        now = trio.current_time()
        if now < self._logged_at + _LOGGED_EVERY:
            return
        reason = "too slow" if isinstance(error, trio.TooSlowError) else str(error)
        _log.info("TLS handshake failed", listener=listener.name, peer=peer, reason=reason, failed=self._failed)
        self._failed, self._logged_at = 0, now
