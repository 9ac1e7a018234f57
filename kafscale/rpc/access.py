"""Who makes a call over gRPC, and whether ACLs allow it.

The caller is the user of its bearer token, or else of its client certificate, by the same rules as on Kafka listeners,
or anonymous. What a method asks for is in a table of its service; a method that is not there is for other services,
which need CLUSTER_ACTION.
"""

import hmac
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import grpc

from kafscale.audit import AuditLog
from kafscale.limited_log import LimitedLog
from kafscale.rpc.errors import StatusError
from kafscale.security.acls import CLUSTER_NAME, AclSet, Decision, Resource
from kafscale.security.asks import CLUSTER_ACTION, Ask
from kafscale.security.certificates import distinguished_name
from kafscale.security.principals import ANONYMOUS, NameRules, NoRuleApplies, Principal, user
from kafscale.security.tokens import TokenRefused, Verified

_STATUS = grpc.StatusCode


def cluster(_: object) -> Iterable[str]:
    """The only resource of an `Ask` about the cluster."""
    return (CLUSTER_NAME,)


@dataclass(frozen=True, slots=True)
class Need:
    """``names``: the resources that a request names. The operation must be allowed on all of them.

    A request that names none is not allowed, unless the need is ``optional``. ``also``: what a caller needs besides.
    """

    ask: Ask
    names: Callable[[Any], Iterable[str]] = cluster
    optional: bool = False
    also: "tuple[Need, ...]" = ()

    def __str__(self) -> str:
        return " and ".join([str(self.ask), *map(str, self.also)])


Needs = Mapping[str, tuple[Need, ...]]
"""What the methods of a service need, by name: one of several alternatives, each with all of its ``also``."""
Verify = Callable[[str], Awaitable[Verified]]
"""Returns whose token this is. Raises TokenRefused."""
OF_SERVICES = (Need(CLUSTER_ACTION),)
"""What methods need that only services call."""
_BY_TOKEN = Decision(allowed=True, rule="the token of administrators")
_NO_NAME = Decision(allowed=False, rule="the request names no resource")


class Caller(NamedTuple):
    """``host``: the address. ``certificate``: PEM, empty if there is none. ``token``: what it sends as ``Bearer``."""

    host: str
    certificate: bytes
    token: str


class _Decided(NamedTuple):
    """The decision about one resource, ``name``."""

    ask: Ask
    name: str
    decision: Decision


class CallGuard:
    """Decides about calls. ``acls`` returns the current ones.

    ``needs``: see `Needs`. ``token``: whoever presents it may do everything; empty: nobody can. ``verify`` says who
    presents another one; without it, no other is accepted. A caller whose token is refused is not asked for its
    certificate.
    """

    def __init__(
        self,
        acls: Callable[[], AclSet],
        rules: NameRules,
        needs: Needs,
        *,
        audit: AuditLog,
        token: str = "",
        verify: Verify | None = None,
    ) -> None:
        self._acls = acls
        self._audit = audit
        self._rules = rules
        self._needs = needs
        self._token = token.encode()
        self._verify = verify
        self._failures = LimitedLog("authentication failed")

    async def check(self, method: str, request: object, caller: Caller) -> None:
        """Raise StatusError unless the caller may call ``method``, a name without its service, with ``request``."""
        needs = self._needs.get(method, OF_SERVICES)
        if self._token and hmac.compare_digest(caller.token.encode(), self._token):
            asked = (needs[0], *needs[0].also)
            decided = [_Decided(need.ask, name, _BY_TOKEN) for need in asked for name in need.names(request)]
            self._log(decided, ANONYMOUS, method, caller)
            return
        try:
            principal = await self._principal(caller)
        except StatusError as error:
            self._failures.info(host=caller.host, method=method, reason=str(error))
            raise
        decided = []
        for need in needs:
            decided = self._decide(need, request, principal, caller.host)
            if all(each.decision.allowed for each in decided):
                self._log(decided, principal, method, caller)
                return
        self._log([each for each in decided if not each.decision.allowed], principal, method, caller)
        wanted = " or ".join(map(str, needs))
        raise StatusError(_STATUS.PERMISSION_DENIED, f"{principal} needs {wanted}")

    def _decide(self, need: Need, request: object, principal: Principal, host: str) -> list[_Decided]:
        """Return the decisions about all resources of a request, also those of ``also``."""
        acls, ask = self._acls(), need.ask
        names = list(need.names(request))
        decided = [
            _Decided(ask, name, acls.decide(principal, host, ask.operation, Resource(ask.type, name))) for name in names
        ]
        if not names and not need.optional:
            decided = [_Decided(ask, "", _NO_NAME)]
        for other in need.also:
            decided += self._decide(other, request, principal, host)
        return decided

    def _log(self, decided: Iterable[_Decided], principal: Principal, method: str, caller: Caller) -> None:
        for ask, name, decision in decided:
            self._audit.decided(decision, principal, caller.host, ask, name, method=method)

    async def _principal(self, caller: Caller) -> Principal:
        if caller.token:
            return await self._user_of(caller.token)
        if not caller.certificate:
            return ANONYMOUS
        try:
            return self._rules.user_of(_distinguished_name(caller.certificate))
        except (NoRuleApplies, ValueError) as error:
            raise StatusError(_STATUS.UNAUTHENTICATED, f"the certificate names no user: {error}") from None

    async def _user_of(self, token: str) -> Principal:
        if self._verify is None:
            raise StatusError(_STATUS.UNAUTHENTICATED, "the token is wrong")
        try:
            return user((await self._verify(token)).user)
        except TokenRefused as error:
            raise StatusError(_STATUS.UNAUTHENTICATED, str(error)) from None


@lru_cache(maxsize=1024)
def _distinguished_name(pem: bytes) -> str:
    """Raises ValueError if the certificate cannot be read. Every call has one, so the names are remembered."""
    return distinguished_name(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
