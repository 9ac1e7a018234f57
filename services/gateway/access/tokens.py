"""Verification of bearer tokens with the issuer's current keys."""

from collections.abc import Callable

import trio

from kafscale.config.oauthbearer import OauthbearerSettings
from kafscale.security import tokens
from kafscale.security.tokens import KeySet, TokenRules, UnknownKey, Verified
from services.gateway.access.keys import TokenKeys, reader

_CHECKS = 2
"""Tokens that are verified at the same time, because each takes up to a millisecond of CPU time."""


class TokenVerifier:
    """Verifies the tokens of all clients of a gateway. `run` must be running. ``now`` returns seconds since 1970."""

    def __init__(self, rules: TokenRules, keys: TokenKeys, now: Callable[[], float]) -> None:
        self.rules = rules
        self.now = now
        self._keys = keys
        self._checks = trio.CapacityLimiter(_CHECKS)

    async def run(self) -> None:
        """Keep the keys up to date until cancelled."""
        await self._keys.run()

    async def verify(self, token: str) -> Verified:
        """Return whose token this is, and until when it is accepted. Raises TokenRefused.

        If the token's key id is unknown, the keys are read again, and this waits for them for up to 5 seconds.
        """
        known = self._keys.current
        try:
            return await self._verify(token, known)
        except UnknownKey:
            # They may have been read in the meantime.
            if self._keys.current is known and not await self._keys.read_again():
                raise
        return await self._verify(token, self._keys.current)

    async def _verify(self, token: str, known: KeySet) -> Verified:
        return await trio.to_thread.run_sync(tokens.verify, token, known, self.rules, self.now(), limiter=self._checks)


def token_verifier(settings: OauthbearerSettings, now: Callable[[], float]) -> TokenVerifier:
    """Return the verifier of the settings. Raises a ConfigError if the CA file is invalid."""
    rules = TokenRules(
        issuer=settings.token_issuer or "",
        audiences=settings.token_audiences,
        scope=settings.token_scope,
        user_claim=settings.token_user_claim,
        scope_claim=settings.token_scope_claim,
        skew_seconds=settings.token_skew_seconds,
    )
    return TokenVerifier(rules, TokenKeys(reader(settings), settings.token_keys_refresh_ms / 1000), now)
