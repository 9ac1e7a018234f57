"""Authentication of one connection: who its client is, by its certificate or by SASL.

The exchange is Kafka's: SaslHandshake names a mechanism, then SaslAuthenticate carries its messages (KIP-152). With
KAFSCALE_SASL_MAX_REAUTH_MS, the client repeats both on the same connection before its session ends (KIP-368). A session
with OAUTHBEARER also ends when the client's token expires, as in Kafka.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kafscale.config.client_security import OAUTHBEARER, PLAIN
from kafscale.errors import KafscaleError
from kafscale.limited_log import LimitedLog
from kafscale.metadata.users import UserCatalog
from kafscale.process.tokens import TokenVerifier
from kafscale.security import bearer, plain, scram
from kafscale.security.principals import Principal, user
from kafscale.security.scram import Credential, Mechanism, ScramServer
from kafscale.security.tokens import ScopeMissing, TokenRefused

_MECHANISMS = {mechanism.value: mechanism for mechanism in Mechanism}
_STRONGEST_FIRST = (Mechanism.SHA_512, Mechanism.SHA_256)
_CHECKS = 2
"""Passwords that are checked at the same time, because each takes milliseconds of CPU time."""
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
"""Seconds until the first failure of a user from an address is answered, and the longest until its next check."""
_FORGOTTEN_AFTER = 60.0
_MOST_REMEMBERED = 10_000
_REMEMBERED_CHARACTERS = 200
"""Of the name of a user, which a client that is not authenticated chooses."""


class NotAuthenticated(KafscaleError):
    """Authentication failed. The message is for the client and does not say what was wrong about its credentials."""


@dataclass(slots=True)
class _Failures:
    """Failures in a row. Times are Trio's."""

    count: int = 0
    last: float = 0.0
    next_check: float = 0.0

    @property
    def delay(self) -> float:
        """Seconds between the last failure and the next check."""
        return min(_FIRST_DELAY * 2.0 ** min(self.count - 1, 10), _LONGEST_DELAY)


class Authenticator:
    """Checks the credentials of all clients of a gateway. ``tokens`` is needed for listeners with OAUTHBEARER."""

    def __init__(self, users: UserCatalog, tokens: TokenVerifier | None = None) -> None:
        self._users = users
        self._tokens = tokens
        # Credentials of unknown users must not change while the process runs, and nobody may be able to compute them.
        self._secret = secrets.token_bytes(32)
        self._checks = trio.CapacityLimiter(_CHECKS)
        # By user and address.
        self._failures: dict[tuple[str, str], _Failures] = {}
        self._log = LimitedLog("authentication failed")

    def scram(self, mechanism: Mechanism) -> ScramServer:
        """Begin an exchange."""
        return ScramServer(mechanism, lambda name: self._credential(mechanism, name), secrets.token_urlsafe(24))

    async def check_password(self, name: str, password: str) -> bool:
        """Return whether the user has this password. It takes the same time for a user that does not exist."""
        found = self._users.users.get(name)
        credentials = found.credentials if found else {}
        mechanism = next((each for each in _STRONGEST_FIRST if each in credentials), _STRONGEST_FIRST[0])
        known = credentials.get(mechanism) or self._credential(mechanism, name)
        return await trio.to_thread.run_sync(
            scram.has_password, mechanism, known, password.encode(), limiter=self._checks
        )

    async def check_token(self, token: str) -> tuple[str, float]:
        """Return the user of a token, and for how many more seconds it is accepted. Raises TokenRefused."""
        if self._tokens is None:
            raise RuntimeError("a listener with OAUTHBEARER needs a verifier of tokens")
        found = await self._tokens.verify(token)
        return found.user, found.expires_at - self._tokens.now()

    def refusal(self, reason: TokenRefused) -> str:
        """Return the JSON for a client whose token is refused (RFC 7628)."""
        if isinstance(reason, ScopeMissing) and self._tokens is not None:
            return bearer.refusal("insufficient_scope", self._tokens.rules.scope)
        return bearer.refusal("invalid_token")

    async def turn(self, name: str, host: str) -> None:
        """Wait until the credentials of this user may be checked. Without recent failures from this address, that is
        now. Otherwise there is one check at a time, and a longer pause after each failure."""
        while True:
            found = self._failures.get((name[:_REMEMBERED_CHARACTERS], host))
            now = trio.current_time()
            if found is None or found.last < now - _FORGOTTEN_AFTER:
                return
            if found.next_check <= now:
                found.next_check = now + found.delay
                return
            await trio.sleep_until(found.next_check)

    async def failed(self, name: str, host: str, reason: str, began: float) -> None:
        """Note and log a failure, and wait before it is answered. The time since ``began`` counts, so that the answer
        does not tell how long the check took."""
        self._log.info(user=name[:_REMEMBERED_CHARACTERS], host=host, reason=reason)
        now, key = trio.current_time(), (name[:_REMEMBERED_CHARACTERS], host)
        found = self._failures.pop(key, None)
        if found is None or found.last < now - _FORGOTTEN_AFTER:
            found = _Failures()
        while len(self._failures) >= _MOST_REMEMBERED:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = found
        found.count += 1
        found.last, found.next_check = now, now + found.delay
        await trio.sleep_until(began + _FIRST_DELAY)

    def succeeded(self, name: str, host: str) -> None:
        """Forget failures."""
        self._failures.pop((name[:_REMEMBERED_CHARACTERS], host), None)

    def _credential(self, mechanism: Mechanism, name: str) -> Credential:
        found = self._users.users.get(name)
        known = found.credentials.get(mechanism) if found else None
        return known or scram.decoy(mechanism, self._secret, name)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mechanism answers. ``session_ms``: after which time the client must authenticate again; 0: never."""

    message: bytes
    session_ms: int = 0


class Authentication:
    """The state of one connection. ``principal`` is given if no SASL is needed.

    ``mechanisms``: those that the client may choose; empty if the listener has no SASL. ``session_ms``: how long a
    client is authenticated; 0: forever, or as long as its token is accepted.
    """

    def __init__(
        self,
        principal: Principal | None,
        *,
        host: str = "",
        mechanisms: tuple[str, ...] = (),
        session_ms: int = 0,
        authenticator: Authenticator | None = None,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self.principal = principal
        """Who the client is; None before it is authenticated."""
        self.mechanisms = mechanisms
        self._host = host
        self._session_ms = session_ms
        self._authenticator = authenticator
        self._now = now
        self._chosen = ""
        self._scram: ScramServer | None = None
        # The JSON that says why the client's token is refused.
        self._refusal = ""
        self._ends: float | None = None
        self._former_mechanism = ""
        # The user that the client claims to be.
        self._claimed = ""

    @property
    def expired(self) -> bool:
        """Whether the session has ended, so that the client may only authenticate again."""
        return self._ends is not None and self._now() >= self._ends

    @property
    def known_principal(self) -> Principal:
        """Who the client is. To be asked only after it has authenticated."""
        if self.principal is None:
            raise RuntimeError("the client is not authenticated")
        return self.principal

    @property
    def may_begin(self) -> bool:
        """Whether the client may name a mechanism: for the first time, or to authenticate again."""
        return bool(self.mechanisms) and (self.principal is None or self._ends is not None)

    def choose(self, mechanism: str) -> bool:
        """Begin with a mechanism. Return False if it is not offered."""
        self._scram, self._refusal = None, ""
        self._chosen = mechanism if mechanism in self.mechanisms else ""
        return bool(self._chosen)

    @property
    def begun(self) -> bool:
        """Whether a mechanism was chosen, so that its messages may follow."""
        return bool(self._chosen)

    async def proceed(self, message: bytes) -> Answer:
        """Process a message of the chosen mechanism. Raises NotAuthenticated, after a delay."""
        began = self._now()
        if self._refusal:
            # The client has acknowledged the refusal, which was logged and delayed.
            raise NotAuthenticated(self._refusal)
        try:
            return await self._proceed(message)
        except TokenRefused as error:
            await self._required_authenticator().failed("", self._host, str(error), began)
            self._refusal = self._required_authenticator().refusal(error)
            return Answer(self._refusal.encode())
        except NotAuthenticated as error:
            await self._required_authenticator().failed(self._claimed, self._host, str(error), began)
            raise

    async def _proceed(self, message: bytes) -> Answer:
        if self._former_mechanism and self._chosen != self._former_mechanism:
            raise NotAuthenticated("the SASL mechanism cannot change when a client authenticates again")
        if self._chosen == PLAIN:
            return self._done(await self._check_plain(message), b"")
        if self._chosen == OAUTHBEARER:
            user_name, seconds = await self._check_bearer(message)
            return self._done(user_name, b"", seconds)
        if self._scram is None:
            self._scram = self._required_authenticator().scram(_MECHANISMS[self._chosen])
        exchange = self._scram
        if exchange.user_name:
            await self._required_authenticator().turn(exchange.user_name, self._host)
        try:
            answer = exchange.respond(message)
            self._claimed = exchange.user_name
        except scram.ScramFailed:
            raise self._invalid_credentials() from None
        return self._done(exchange.user_name, answer) if exchange.complete else Answer(answer)

    async def _check_plain(self, message: bytes) -> str:
        try:
            name, password = plain.parse(message)
        except plain.PlainFailed as error:
            raise NotAuthenticated(f"Authentication failed: {error}") from None
        self._claimed = name
        await self._required_authenticator().turn(name, self._host)
        if not await self._required_authenticator().check_password(name, password):
            raise NotAuthenticated("Authentication failed: Invalid username or password")
        return name

    async def _check_bearer(self, message: bytes) -> tuple[str, float]:
        """Return the user of the token, and for how many more seconds the token is accepted."""
        try:
            token, acts_for = bearer.parse(message)
        except bearer.BearerFailed:
            raise self._invalid_credentials() from None
        name, seconds = await self._required_authenticator().check_token(token)
        self._claimed = name
        if acts_for not in ("", name):
            raise NotAuthenticated("Authentication failed: the authorization id is not the user of the token")
        return name, seconds

    def _invalid_credentials(self) -> NotAuthenticated:
        return NotAuthenticated(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self._chosen}"
        )

    def _done(self, name: str, answer: bytes, seconds: float | None = None) -> Answer:
        """Note who the client is. ``seconds``: for how long its credentials are valid; None: forever."""
        principal = user(name)
        if self.principal is not None and principal != self.principal:
            raise NotAuthenticated("the user cannot change when a client authenticates again")
        self._required_authenticator().succeeded(name, self._host)
        self.principal = principal
        self._former_mechanism, self._chosen, self._scram = self._chosen, "", None
        session_ms = self._session_ms
        if seconds is not None:
            # Not 0, which means forever.
            valid_ms = max(int(seconds * 1000), 1)
            session_ms = min(session_ms or valid_ms, valid_ms)
        self._ends = self._now() + session_ms / 1000 if session_ms else None
        return Answer(answer, session_ms)

    def _required_authenticator(self) -> Authenticator:
        if self._authenticator is None:
            raise RuntimeError("a listener with SASL needs an authenticator")
        return self._authenticator
