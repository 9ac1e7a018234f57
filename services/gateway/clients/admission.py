"""Admits connections: TLS handshakes, client certificates, and which listeners require SASL."""

from collections.abc import Callable
from functools import partial

import trio

from kafscale.config.client_security import ClientSecuritySettings
from kafscale.config.listeners import Listener
from kafscale.limited_log import LimitedLog
from kafscale.process.tls_stream import TlsStream
from kafscale.security.principals import ANONYMOUS, NoRuleApplies
from services.gateway.access.authentication import Authentication, Authenticator
from services.gateway.access.tls import ServerTls
from services.gateway.clients.connection import Stream


class Admission:
    """Admits the connections of all listeners. `run` must be running."""

    def __init__(
        self, listeners: tuple[Listener, ...], settings: ClientSecuritySettings, authenticator: Authenticator
    ) -> None:
        """Raises a ConfigError if a certificate of a listener cannot be used."""
        self._settings = settings
        self._authenticator = authenticator
        self._tls = ServerTls(settings, listeners)
        self._unknown = 0
        self._handshakes: set[trio.CancelScope] = set()
        self._failures = LimitedLog("TLS handshake failed")

    async def run(self) -> None:
        """Notice changed certificates until cancelled."""
        await self._tls.contexts.run()

    def stop(self) -> None:
        """Cancel the handshakes that are not complete."""
        for scope in self._handshakes:
            scope.cancel()

    def is_full(self, listener: Listener) -> bool:
        """Whether too many clients of listeners with TLS or SASL are not known yet."""
        return (listener.encrypted or listener.by_sasl) and self._unknown >= self._settings.max_unauthenticated

    def enter(self) -> Callable[[], None]:
        """Count a client that is not known yet. Return a function to call once it is known, or disconnected; a second
        call has no effect."""
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
        """Do the TLS handshake if the listener has TLS.

        Return the stream to use from now on and the state of its authentication, or None if the client is refused.
        """
        secured: Stream = stream
        principal = ANONYMOUS
        if listener.encrypted:
            scope = trio.CancelScope(deadline=trio.current_time() + self._settings.handshake_ms / 1000)
            self._handshakes.add(scope)
            reason = "not complete in time"
            try:
                with scope:
                    secured = await TlsStream.handshake(stream, partial(self._tls.context, listener))
                    reason = ""
                    if not listener.by_sasl:
                        principal = self._tls.principal(secured.peer_certificate())
            except (trio.BrokenResourceError, trio.ClosedResourceError, NoRuleApplies) as error:
                reason = str(error) or type(error).__name__
            finally:
                self._handshakes.remove(scope)
            if reason:
                self._failures.info(listener=listener.name, peer=peer, reason=reason)
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
