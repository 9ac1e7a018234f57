"""Verification of bearer tokens with the issuer's current keys."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kafscale.clock import wall_clock_ms
from kafscale.config.tokens import TokenSettings
from kafscale.process.token_keys import TokenKeys, reader
from kafscale.security import tokens
from kafscale.security.tokens import KeySet, TokenRules, UnknownKey, Verified

_CHECKS = 2
"""Tokens that are verified at the same time, because each takes up to a millisecond of CPU time."""


class TokenVerifier:
    """Verifies the tokens of all clients and callers of a process. ``now`` returns seconds since 1970.

    The keys must be running.
    """

    def __init__(self, rules: TokenRules, keys: TokenKeys, now: Callable[[], float]) -> None:
        self.rules = rules
        self.now = now
        self._keys = keys
        self._checks = trio.CapacityLimiter(_CHECKS)

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


@asynccontextmanager
async def open_verifier(
    settings: TokenSettings, *, wanted: bool, now: Callable[[], float] = lambda: wall_clock_ms() / 1000
) -> AsyncIterator[TokenVerifier | None]:
    """Keep the issuer's keys up to date, and yield the process's verifier of tokens.

    There is none if it is not ``wanted``, or if the settings name no issuer. Raises a ConfigError if the CA file is
    invalid.
    """
    if not wanted or not settings.verifies_tokens:
        yield None
        return
    rules = TokenRules(
        issuer=settings.token_issuer or "",
        audiences=settings.token_audiences,
        scope=settings.token_scope,
        user_claim=settings.token_user_claim,
        scope_claim=settings.token_scope_claim,
        skew_seconds=settings.token_skew_seconds,
    )
    keys = TokenKeys(reader(settings), settings.token_keys_refresh_ms / 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.run)
        yield TokenVerifier(rules, keys, now)
        nursery.cancel_scope.cancel()
