"""Authorization of one connection: what its client may do."""

from kio.schema.errors import ErrorCode

from kafscale.audit import AuditLog
from kafscale.errors import KafscaleError
from kafscale.metadata.acls import AclCatalog
from kafscale.security.acls import ANY_NAME, CLUSTER_NAME, OPERATIONS, AclSet, Decision, Resource, ResourceType
from kafscale.security.asks import DESCRIBE_CLUSTER, Ask
from services.gateway.access.authentication import Authentication

_MOST_REMEMBERED, _LONGEST_REMEMBERED = 1000, 255
"""Decisions of one connection, and the characters of a name, which a client chooses."""
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
    """Decisions are remembered until the ACLs change. Without ``acls``, everything is allowed, and nothing is logged.

    ``host``: the client's address, as in ACLs.
    """

    def __init__(self, acls: AclCatalog | None, audit: AuditLog, authentication: Authentication, host: str) -> None:
        self._catalog = acls
        self._audit = audit
        self._authentication = authentication
        self._host = host
        self._acls: AclSet | None = None
        self._decided: dict[tuple[Ask, str], Decision] = {}
        self.client_id = ""
        """That of the last request, for the audit log."""

    def allows(self, ask: Ask, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client may do this with the resource ``name``. The decision may be logged."""
        if self._catalog is None:
            return True
        decision = self._decide(self._catalog, ask, name)
        self._log(ask, name, decision)
        return decision.allowed

    def allows_one(self, *alternatives: tuple[Ask, str]) -> bool:
        """Return whether the client may do one of these. Only that one is logged, or the last if none is allowed."""
        chosen = next((each for each in alternatives if self.shows(*each)), alternatives[-1])
        return self.allows(*chosen)

    def shows_one(self, *alternatives: tuple[Ask, str]) -> bool:
        """The same without a line in the log."""
        return any(self.shows(*each) for each in alternatives)

    def shows(self, ask: Ask, name: str = CLUSTER_NAME) -> bool:
        """The same for something that the client has not named, such as an item of a list. It is not logged."""
        return self._catalog is None or self._decide(self._catalog, ask, name).allowed

    def allows_any(self, ask: Ask) -> bool:
        """Return whether the client may do this with at least one resource of the type."""
        if self._catalog is None:
            return True
        principal = self._authentication.known_principal
        decision = self._catalog.current.decide_for_any(principal, self._host, ask.operation, ask.type)
        self._log(ask, ANY_NAME, decision)
        return decision.allowed

    def check(self, ask: Ask, name: str = CLUSTER_NAME) -> None:
        """Raise Denied unless the client may do this."""
        if not self.allows(ask, name):
            raise Denied(ask)

    def operations(self, type_: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return all that the client may do with a resource, as a bit field of Kafka's operation codes."""
        return sum(1 << operation for operation in OPERATIONS[type_] if self.shows(Ask(operation, type_), name))

    def cluster_operations(self) -> int:
        """Return all that the client may do with the cluster. Nothing is shown to clients that may not describe it."""
        return self.operations(ResourceType.CLUSTER) if self.shows(DESCRIBE_CLUSTER) else 0

    def _decide(self, catalog: AclCatalog, ask: Ask, name: str) -> Decision:
        if catalog.current is not self._acls or len(self._decided) >= _MOST_REMEMBERED:
            self._acls, self._decided = catalog.current, {}
        decision = self._decided.get((ask, name))
        if decision is None:
            resource = Resource(ask.type, name)
            decision = self._acls.decide(self._authentication.known_principal, self._host, ask.operation, resource)
            if len(name) <= _LONGEST_REMEMBERED:
                self._decided[ask, name] = decision
        return decision

    def _log(self, ask: Ask, name: str, decision: Decision) -> None:
        principal = self._authentication.known_principal
        self._audit.decided(decision, principal, self._host, ask, name, client_id=self.client_id)
