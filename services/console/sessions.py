"""Who uses the console: sessions of browsers, and what each may do. No IO, but random numbers."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

COOKIE = "kafscale-session"
CSRF_HEADER = "x-csrf-token"
_RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """``token``: what is presented to gateways. ``csrf``: what every request that changes something must contain.

    ``may_change``: whether the user is an operator, and not only a viewer.
    """

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    expires: float
    may_change: bool


class Sessions:
    """The signed-in browsers. Beyond ``most``, the one that was unused for the longest time is signed out.

    ``clock`` returns seconds.
    """

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, token: str, *, may_change: bool) -> tuple[str, Session]:
        """Return a new session and its id."""
        if len(self._by_id) >= self._most:
            self._by_id.popitem(last=False)
        name = secrets.token_urlsafe(_RANDOM_BYTES)
        session = Session(token, secrets.token_urlsafe(_RANDOM_BYTES), self._clock() + self._seconds, may_change)
        self._by_id[name] = session
        return name, session

    def find(self, headers: Mapping[str, str]) -> Session | None:
        """Return the session of a request by its cookie, if it has not expired."""
        name = cookie_in(headers)
        session = self._by_id.get(name)
        if session is None:
            return None
        if session.expires <= self._clock():
            del self._by_id[name]
            return None
        self._by_id.move_to_end(name)
        return session

    def end(self, headers: Mapping[str, str]) -> None:
        self._by_id.pop(cookie_in(headers), None)


def cookie_in(headers: Mapping[str, str]) -> str:
    """Return the id of the session in a request, or an empty string.

    Other programs on the same host may have set cookies of any form, which http.cookies would not pass over.
    """
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def set_cookie(name: str, *, seconds: float, secure: bool) -> str:
    """Return the value of ``Set-Cookie`` for a session. Scripts cannot read it, and foreign sites do not send it."""
    ending = "; Secure" if secure else ""
    return f"{COOKIE}={name}; Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite=Strict{ending}"


def allows_change(session: Session, headers: Mapping[str, str]) -> bool:
    """Whether a request that changes something has the token of the session that only its page knows."""
    return secrets.compare_digest(headers.get(CSRF_HEADER, "").encode(), session.csrf.encode())
