"""A client of the Kubernetes API server, based on kr8s, which supports kubeconfigs and service accounts.

Raises ApiUnavailable if the outcome is unknown, and ApiRefused if the server rejects a request.
"""

import importlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import trio

from kafscale.errors import ConfigError, KafscaleError, Refused
from services.operator.counters import OperatorCounters
from services.operator.resources import Kind, Object, name_of

_WATCH_SECONDS = 60
"""The server ends a watch after this time. The next watch continues from there."""
_WATCH_GRACE_SECONDS = 20.0
"""How much longer than that a watch may take."""
_PAGE = 500
_AGAIN = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


class ApiUnavailable(KafscaleError):
    """The server did not answer, or its answer was lost. Not an Unavailable, which is about clusters."""


class ApiRefused(Refused):
    """The server rejected a request with a ``status`` of 4xx. The message is the server's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def missing(self) -> bool:
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Whether others changed or created the object first."""
        return self.status == HTTPStatus.CONFLICT


class Expired(KafscaleError):
    """A watch cannot continue from its version. All resources must be listed again."""


class Kubernetes:
    """The API server, for one namespace. ``timeout`` is that of a request in seconds."""

    def __init__(self, api: Any, namespace: str, counters: OperatorCounters, *, timeout: float) -> None:
        self._api = api
        self.namespace = namespace
        self._counters = counters
        self._timeout = timeout

    @classmethod
    async def open(cls, namespace: str, counters: OperatorCounters, *, timeout: float) -> "Kubernetes":
        """Connect with ``KUBECONFIG``, ~/.kube/config or the pod's service account.

        An empty ``namespace`` means that of the kubeconfig. Raises ConfigError if kr8s is not installed or finds no
        server, and ApiUnavailable if the server does not answer.
        """
        try:
            asyncio_api, httpx = importlib.import_module("kr8s.asyncio"), importlib.import_module("httpx")
        except ImportError as error:
            raise ConfigError(
                f"the operator requires the package extra 'operator': pip install 'kafscale[operator]' ({error})"
            ) from error
        try:
            with trio.fail_after(timeout):
                api = await asyncio_api.api()
        except (trio.TooSlowError, httpx.HTTPError, OSError) as error:
            raise ApiUnavailable(f"the Kubernetes API server does not answer: {_why(error)}") from error
        except ValueError as error:
            raise ConfigError(f"no Kubernetes API server configured: {error}; set KUBECONFIG") from error
        return cls(api, namespace or api.namespace, counters, timeout=timeout)

    async def get(self, kind: Kind, name: str) -> Object | None:
        try:
            return await self._call("GET", kind, name)
        except ApiRefused as error:
            if error.missing:
                return None
            raise

    async def list_all(self, kind: Kind) -> tuple[list[Object], str]:
        """Return all resources and the version to watch from."""
        found: list[Object] = []
        query: dict[str, str] = {"limit": str(_PAGE)}
        while True:
            page = await self._call("GET", kind, query=query)
            found += page["items"]
            rest = page["metadata"].get("continue")
            if not rest:
                return found, page["metadata"]["resourceVersion"]
            query = {"limit": str(_PAGE), "continue": rest}

    async def create(self, kind: Kind, body: Object) -> Object:
        return await self._call("POST", kind, body=body)

    async def replace(self, kind: Kind, body: Object) -> Object:
        """Replace a resource. Raises ApiRefused with ``conflict`` if it has changed since ``body`` was read."""
        return await self._call("PUT", kind, name_of(body), body=body)

    async def patch(self, kind: Kind, name: str, change: Object, *, subresource: str = "") -> Object:
        """Apply a merge patch: lists are replaced, and null removes a field."""
        return await self._call(
            "PATCH", kind, name, subresource, body=change, content_type="application/merge-patch+json"
        )

    async def apply(self, kind: Kind, body: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Run a forced server-side apply: ``manager`` becomes the owner of all fields in ``body``.

        ``dry_run``: only have the server validate it.
        """
        return await self._call(
            "PATCH",
            kind,
            name_of(body),
            body=body,
            query={"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})},
            content_type="application/apply-patch+yaml",
        )

    async def delete(self, kind: Kind, resource: Object) -> None:
        """Delete exactly this resource and what it owns. Does nothing if it no longer exists."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": resource["metadata"]["uid"]}}
        try:
            await self._call("DELETE", kind, name_of(resource), body=body)
        except ApiRefused as error:
            if not error.missing and not error.conflict:
                raise

    @asynccontextmanager
    async def watch(self, kind: Kind, version: str) -> AsyncIterator[AsyncIterator[tuple[str, Object]]]:
        """Watch changes from ``version`` on, as (ADDED, MODIFIED, DELETED or BOOKMARK, object), for about a minute."""
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        self._counters.watches[kind.name] += 1
        with self._translated_errors("WATCH", kind):
            async with self._api.call_api(
                "GET", **self._place(kind), params=query, stream=True, timeout=_WATCH_SECONDS + _WATCH_GRACE_SECONDS
            ) as response:
                self._count("WATCH", response.status_code)

                async def changes() -> AsyncIterator[tuple[str, Object]]:
                    async for line in response.aiter_lines():
                        change = json.loads(line)
                        if change["type"] == "ERROR":
                            raise _watch_error(change["object"])
                        yield change["type"], change["object"]

                yield changes()

    async def _call(
        self,
        method: str,
        kind: Kind,
        name: str = "",
        subresource: str = "",
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        content = None if body is None else json.dumps(body)
        request: dict[str, Any] = {
            **self._place(kind, name, subresource),
            "params": query,
            "content": content,
            "headers": {"content-type": content_type},
            "timeout": self._timeout,
        }
        with self._translated_errors(method, kind):
            with trio.fail_after(self._timeout):
                status, answer = await self._answer(method, request, raise_for_status=False)
                if status == HTTPStatus.UNAUTHORIZED:
                    # The token may have been renewed. kr8s then reads it again and repeats the request.
                    status, answer = await self._answer(method, request, raise_for_status=True)
            self._count(method, status)
            if status >= HTTPStatus.BAD_REQUEST:
                raise _refusal(status, answer)
            return answer

    async def _answer(self, method: str, request: Object, *, raise_for_status: bool) -> tuple[int, Object]:
        async with self._api.call_api(method, raise_for_status=raise_for_status, **request) as response:
            answer = response.json()
            return int(response.status_code), answer if isinstance(answer, dict) else {}

    def _place(self, kind: Kind, name: str = "", subresource: str = "") -> Object:
        path = "/".join(part for part in (kind.plural, name, subresource) if part)
        return {"version": kind.api, "namespace": self.namespace, "url": path}

    def _count(self, method: str, status: int) -> None:
        self._counters.requests[method, str(status)] += 1
        self._counters.failing = ""

    @contextmanager
    def _translated_errors(self, method: str, kind: Kind) -> Iterator[None]:
        """Convert the errors of kr8s and httpx to those of this module."""
        httpx, kr8s = importlib.import_module("httpx"), importlib.import_module("kr8s")
        try:
            yield
        except kr8s.ServerError as error:
            status = error.response.status_code if error.response is not None else 0
            self._count(method, status)
            raise _refusal(status, {"message": str(error)}) from error
        except (trio.TooSlowError, httpx.HTTPError, kr8s.APITimeoutError, OSError, ValueError) as error:
            self._count(method, 0)
            self._counters.failing = f"{method} {kind.plural}: {_why(error)}"
            raise ApiUnavailable(f"the Kubernetes API server does not answer: {_why(error)}") from error


def _refusal(status: int, answer: Object) -> KafscaleError:
    message = str(answer.get("message") or HTTPStatus(status).phrase)
    if status == HTTPStatus.GONE:
        return Expired(message)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _AGAIN:
        return ApiUnavailable(f"the Kubernetes API server failed: {message}")
    return ApiRefused(status, message)


def _watch_error(status: Object) -> KafscaleError:
    return _refusal(int(status.get("code", HTTPStatus.INTERNAL_SERVER_ERROR)), status)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
