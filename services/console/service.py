"""Answers the requests of browsers."""

import json
import secrets
from http import HTTPStatus
from typing import Any

import grpc
import trio

from kafscale.config.admin_access import TOKEN_TEXT
from kafscale.errors import KafscaleError, Unavailable
from kafscale.kafka_client.requests import Refusal
from kafscale.process.http import Handover, Request, Response
from kafscale.process.version import kafscale_version
from kafscale.rpc.admin import CLUSTER_STATUS
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.console.api import changes, reads
from services.console.api.encoding import encode
from services.console.gateways import Gateways, as_unavailable
from services.console.histories import Histories
from services.console.live import Send, serve_live
from services.console.pages import SECURITY_HEADERS, Pages
from services.console.records.errors import RecordsRefused
from services.console.records.service import Records, Talk, status_of
from services.console.requests import WrongRequest
from services.console.sessions import Session, Sessions, allows_change, set_cookie
from services.console.settings import ConsoleSettings
from services.console.watching import Watches

LARGEST_BODY = 64 << 10
_API, _LIVE, _SESSION = "/api/", "/live/", "/api/session"
_REFUSED_SECONDS = 1.0
"""How long the answer to a wrong token takes."""
_FOREIGN = "the request is not of a page of this console; behind a proxy, set KAFSCALE_CONSOLE_ORIGIN"
_STATUS = grpc.StatusCode
_STATUSES = {
    _STATUS.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    _STATUS.NOT_FOUND: HTTPStatus.NOT_FOUND,
    _STATUS.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    _STATUS.FAILED_PRECONDITION: HTTPStatus.CONFLICT,
    _STATUS.UNAUTHENTICATED: HTTPStatus.FORBIDDEN,
    _STATUS.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    _STATUS.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    _STATUS.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}


class Console:
    """``token``: what the console itself presents to gateways, for viewers and if users do not sign in.

    ``viewer_token``: the token with which viewers sign in; empty: nobody does.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        gateways: Gateways,
        watches: Watches,
        records: Records,
        histories: Histories,
        *,
        token: str,
        viewer_token: str,
    ) -> None:
        self._settings = settings
        self._gateways = gateways
        self._watches = watches
        self._records = records
        self._histories = histories
        self._token = token
        self._viewer_token = viewer_token.encode()
        self._origins = settings.origins()
        self._pages = Pages()
        seconds = settings.console_session_ms / 1000
        self._sessions = Sessions(most=settings.console_max_sessions, seconds=seconds, clock=trio.current_time)
        # The session of everybody if nobody signs in.
        self._everybody = (
            None
            if settings.signs_in
            else Session(
                token,
                csrf=secrets.token_urlsafe(),
                expires=float("inf"),
                may_change=not settings.console_read_only,
            )
        )
        self.live = 0
        """The number of live pages."""

    @property
    def sessions(self) -> int:
        """The number of signed-in browsers."""
        return len(self._sessions)

    async def handle(self, request: Request) -> Response | Handover:
        """Answer a request."""
        answer = await self._answer(request)
        if isinstance(answer, Handover):
            return answer
        return Response(answer.body, answer.content_type, answer.status, headers=(*answer.headers, *SECURITY_HEADERS))

    async def _answer(self, request: Request) -> Response | Handover:
        if not self._origins.accepts(request.headers.get("host", "")):
            return _error(HTTPStatus.MISDIRECTED_REQUEST, "unknown host name; see KAFSCALE_CONSOLE_HOSTS and _ORIGIN")
        if request.path.startswith(_LIVE):
            return self._answer_live(request)
        if not request.path.startswith(_API):
            if request.method not in ("GET", "HEAD"):
                return _error(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed")
            return self._pages.find(request.path)
        if request.method not in ("GET", "POST", "DELETE"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "only GET, POST and DELETE are allowed")
        # A foreign page cannot read the answer, but the request may be expensive.
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _error(HTTPStatus.FORBIDDEN, _FOREIGN)
        if request.path == _SESSION:
            return await self._answer_session(request)
        session = self._session(request)
        if session is None:
            return _error(HTTPStatus.UNAUTHORIZED, "not signed in")
        if request.method == "GET":
            return await self._read(request, session)
        return await self._change(request, session)

    async def _read(self, request: Request, session: Session) -> Response:
        try:
            answer = await self._records.read(request.path, request.query, session.token)
            if answer is not None:
                return answer if isinstance(answer, Response) else _json(answer)
            found = reads.found(request.path, request.query)
            if found is not None:
                return Response(await encode(await self._gateways.read(*found, session.token)))
            history = await self._histories.find(request.path, session.token)
            return _error(HTTPStatus.NOT_FOUND, "no such path") if history is None else _json(history)
        except WrongRequest as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        except KafscaleError as error:
            return self._failed(error, request, session)

    async def _change(self, request: Request, session: Session) -> Response:
        if not self._origins.is_own(request.headers) or not allows_change(session, request.headers):
            return _error(HTTPStatus.FORBIDDEN, _FOREIGN)
        if not session.may_change:
            return _error(HTTPStatus.FORBIDDEN, "viewers may not change anything")
        try:
            body = _object(request.body)
            answer = await self._records.change(request.method, request.path, body, session.token)
            if answer is not None:
                return _json(answer)
            call = changes.change_for(request.method, request.path, body)
            if call is None:
                return _error(HTTPStatus.NOT_FOUND, "no such path")
            method, message = call
            send = self._gateways.begin if method.streams else self._gateways.change
            return Response(await encode(await send(method, message, session.token)))
        except WrongRequest as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        except KafscaleError as error:
            return self._failed(error, request, session)

    def _failed(self, error: KafscaleError, request: Request, session: Session) -> Response:
        """Return the answer to a request that failed. If the user's token is no longer accepted, end the session."""
        refused = isinstance(error, StatusError) and error.code is _STATUS.UNAUTHENTICATED
        if refused and session.token != self._token:
            self._sessions.end(request.headers)
            return _error(HTTPStatus.UNAUTHORIZED, "the token has expired, or is no longer accepted")
        return _failure(error)

    def _session(self, request: Request) -> Session | None:
        return self._everybody or self._sessions.find(request.headers)

    async def _answer_session(self, request: Request) -> Response:
        """Describe, begin or end the session of a browser."""
        if request.method == "GET":
            session = self._session(request)
            described = {
                "signs_in": self._settings.signs_in,
                "signed_in": session is not None,
                "may_change": session is not None and session.may_change,
                "csrf": "" if session is None else session.csrf,
                "version": kafscale_version(),
            }
            return _json(described)
        if not self._origins.is_own(request.headers):
            return _error(HTTPStatus.FORBIDDEN, _FOREIGN)
        if request.method == "POST":
            return await self._sign_in(request)
        session = self._session(request)
        if session is not None and not allows_change(session, request.headers):
            return _error(HTTPStatus.FORBIDDEN, "the request has no valid token of the session")
        self._sessions.end(request.headers)
        return _json({}, ("set-cookie", set_cookie("", seconds=0, secure=_is_secure(request))))

    async def _sign_in(self, request: Request) -> Response:
        try:
            token = _object(request.body).get("token")
        except WrongRequest as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        try:
            token = TOKEN_TEXT.parse(token if isinstance(token, str) else "")
        except ValueError:
            await trio.sleep(_REFUSED_SECONDS)
            return _error(HTTPStatus.FORBIDDEN, f"a token has {TOKEN_TEXT.accepts}")
        views = bool(self._viewer_token) and secrets.compare_digest(token.encode(), self._viewer_token)
        if views:
            token = self._token
        try:
            refusal, of_nobody = await self._refusal(token), await self._refusal(secrets.token_urlsafe())
        except (StatusError, Unavailable) as error:
            await trio.sleep(_REFUSED_SECONDS)
            return _failure(error)
        # A user may have no rights on the cluster, but on some topics.
        is_user = of_nobody is not None and of_nobody.code is _STATUS.UNAUTHENTICATED
        if refusal is not None and not (is_user and refusal.code is _STATUS.PERMISSION_DENIED):
            await trio.sleep(_REFUSED_SECONDS)
            return _failure(refusal)
        if of_nobody is None:
            text = "the gateways accept every token; set KAFSCALE_ADMIN_TOKEN or KAFSCALE_ACLS on them"
            return _error(HTTPStatus.CONFLICT, text)
        name, _ = self._sessions.begin(token, may_change=not views and not self._settings.console_read_only)
        seconds = self._settings.console_session_ms / 1000
        return _json({}, ("set-cookie", set_cookie(name, seconds=seconds, secure=_is_secure(request))))

    async def _refusal(self, token: str) -> StatusError | None:
        """Return why the gateways refuse a token, or None. Raises StatusError, Unavailable if they do not answer."""
        try:
            await self._gateways.read(CLUSTER_STATUS, pb.ClusterStatusRequest(), token)
        except StatusError as error:
            if error.code not in (_STATUS.UNAUTHENTICATED, _STATUS.PERMISSION_DENIED):
                raise
            return error
        return None

    def _answer_live(self, request: Request) -> Response | Handover:
        """Serve a live page. Without a WebSocket, only say whether it would be, because browsers hide why it is not."""
        upgrades = request.headers.get("upgrade", "").lower() == "websocket"
        if upgrades and not self._origins.is_own(request.headers):
            return _error(HTTPStatus.FORBIDDEN, _FOREIGN)
        session = self._session(request)
        if session is None:
            return _error(HTTPStatus.UNAUTHORIZED, "not signed in")
        try:
            talk = self._talk(request, session)
        except WrongRequest as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        except KafscaleError as error:
            return _failure(error)
        if talk is None:
            return _error(HTTPStatus.NOT_FOUND, "no such path")
        if self.live >= self._settings.console_max_live:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "too many live pages; see KAFSCALE_CONSOLE_MAX_LIVE")
        if not upgrades:
            return _json({})

        async def take(stream: trio.abc.Stream) -> None:
            self.live += 1
            try:
                await serve_live(stream, talk)
            finally:
                self.live -= 1

        return Handover(take)

    def _talk(self, request: Request, session: Session) -> Talk | None:
        """Return what sends the messages of a live page, or None if there is none at this path."""

        def lives() -> bool:
            return self._session(request) is not None

        async def talk(send: Send) -> None:
            async with self._watches.page(session.token) as (watch, page):
                while True:
                    message = await watch.next_of(page)
                    if not lives():
                        return
                    await send(message)

        if request.path == f"{_LIVE}cluster":
            return talk
        return self._records.tail(request.path, request.query, session.token, lives)


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one if there is no body. Raises WrongRequest."""
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise WrongRequest("the body is not a JSON object")
    return content


def _is_secure(request: Request) -> bool:
    """Whether a page of the console sent a request by https, maybe to a proxy."""
    return request.headers["origin"].startswith("https:")


def _json(content: dict[str, Any], *headers: tuple[str, str]) -> Response:
    return Response(json.dumps(content, separators=(",", ":")).encode(), headers=headers)


def _error(status: HTTPStatus, message: str) -> Response:
    return Response(json.dumps({"error": message}).encode(), status=status)


def _failure(error: KafscaleError) -> Response:
    if isinstance(error, StatusError) and not as_unavailable(error):
        return _error(_STATUSES.get(error.code, HTTPStatus.BAD_GATEWAY), str(error))
    if isinstance(error, Refusal):
        return _error(status_of(error), str(error))
    if isinstance(error, RecordsRefused):
        return _error(error.status, str(error))
    return _error(HTTPStatus.BAD_GATEWAY, f"no gateway answers: {error}")
