"""Authorization of one connection: what its client may do."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.metadata.acls import AclCatalog
from kafscale.security.acls import CLUSTER_NAME, OPERATIONS, AclSet, Decision, Resource, ResourceType
from kafscale.security.asks import DESCRIBE_CLUSTER, Ask
from services.gateway.access.authentication import Authentication

_MOST_REMEMBERED = 1000
"""Decisions of one connection."""
DENIED = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
"""Kafka's error by the type of the resource."""


class Denied(KafscaleError):
    """The client may not do this. A whole request that raises it is answered with ``code``."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(f"{ask} is not allowed")
        self.code = DENIED[ask.type]


class Authorization:
    """Decisions are remembered until the ACLs change. Without ``acls``, everything is allowed.

    ``host``: the client's address, as in ACLs.
    """

    def __init__(self, acls: AclCatalog | None, authentication: Authentication, host: str) -> None:
        self._catalog = acls
        self._authentication = authentication
        self._host = host
        self._acls: AclSet | None = None
        self._decided: dict[tuple[Ask, str], Decision] = {}

    def allows(self, ask: Ask, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client may do this with the resource ``name``."""
        if self._catalog is None:
            return True
        if self._catalog.current is not self._acls or len(self._decided) >= _MOST_REMEMBERED:
            self._acls, self._decided = self._catalog.current, {}
        decision = self._decided.get((ask, name))
        if decision is None:
            principal = self._authentication.required
            decision = self._acls.decide(principal, self._host, ask.operation, Resource(ask.type, name))
            self._decided[ask, name] = decision
        return decision.allowed

    def allows_any(self, ask: Ask) -> bool:
        """Return whether the client may do this with at least one resource of the type."""
        if self._catalog is None:
            return True
        principal = self._authentication.required
        return self._catalog.current.decide_for_any(principal, self._host, ask.operation, ask.type).allowed

    def check(self, ask: Ask, name: str = CLUSTER_NAME) -> None:
        """Raise Denied unless the client may do this."""
        if not self.allows(ask, name):
            raise Denied(ask)

    def allowed(self, ask: Ask, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` with which the client may do this, in order."""
        return [name for name in names if self.allows(ask, name)]

    def operations(self, type_: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return all that the client may do with a resource, as a bit field of Kafka's operation codes."""
        return sum(1 << operation for operation in OPERATIONS[type_] if self.allows(Ask(operation, type_), name))

    def cluster_operations(self) -> int:
        """Return all that the client may do with the cluster. Nothing is shown to clients that may not describe it."""
        return self.operations(ResourceType.CLUSTER) if self.allows(DESCRIBE_CLUSTER) else 0
