"""Settings for authorization: whether ACLs are enforced, and who needs none."""

from collections.abc import Callable
from dataclasses import dataclass

from kafscale.audit import DENIED, LEVELS, AuditLog
from kafscale.config.settings import Parser, boolean, choice, integer, setting
from kafscale.rpc.access import CallGuard, Needs, Verify
from kafscale.security.acls import AclSet
from kafscale.security.principals import NameRules, Principal


def _parse_principals(text: str) -> tuple[Principal, ...]:
    return tuple(dict.fromkeys(Principal.parse(part.strip()) for part in text.split(";") if part.strip()))


def _show_principals(principals: tuple[Principal, ...]) -> str:
    return ";".join(map(str, principals))


def _parse_rules(text: str) -> str:
    NameRules(text)
    return text


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may do what."""

    acls: bool = setting(
        "KAFSCALE_ACLS",
        default=False,
        parse=boolean,
        doc="Whether ACLs are enforced: each request is allowed only if an ACL allows it, or if the principal is a "
        "super user. If false, everybody who reaches a port may do everything.",
    )
    super_users: tuple[Principal, ...] = setting(
        "KAFSCALE_SUPER_USERS",
        default=(),
        parse=Parser("principals of the form User:name, separated by semicolons", _parse_principals, _show_principals),
        doc="Kafka's super.users: principals that may do everything, separated by semicolons.",
    )
    allow_without_acl: bool = setting(
        "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND",
        default=False,
        parse=boolean,
        doc="Kafka's allow.everyone.if.no.acl.found: whether everybody may do everything with a resource that no ACL "
        "is about.",
    )
    max_acls: int = setting(
        "KAFSCALE_MAX_ACLS",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of ACLs. Requests that would create more are refused.",
    )

    tls_principal_mapping_rules: str = setting(
        "KAFSCALE_TLS_PRINCIPAL_MAPPING_RULES",
        default="DEFAULT",
        parse=Parser("rules of the form DEFAULT or RULE:pattern/replacement/[LU], separated by commas", _parse_rules),
        doc="Kafka's ssl.principal.mapping.rules: how the distinguished name in a client's certificate becomes the "
        "name of a user, on Kafka listeners and, with KAFSCALE_ACLS, for calls over gRPC. By default, the whole name "
        "is used. It is written by RFC 4514; for attributes that the RFC does not name, such as email addresses, "
        "Java's form differs.",
    )

    audit: str = setting(
        "KAFSCALE_AUDIT",
        default=DENIED,
        parse=choice(*LEVELS),
        doc="Which decisions about ACLs are in the log. `denied`: denials; `changes`: also allowed changes of topics, "
        "groups, configs, users and ACLs; `all`: also each allowed read and write.",
    )
    audit_lines_per_second: int = setting(
        "KAFSCALE_AUDIT_LINES_PER_SECOND",
        default=100,
        parse=integer(1, 1_000_000),
        doc="The maximum number of lines about one principal that a process writes to the audit log in a second. "
        "Further lines are counted in the next one as `omitted`.",
    )

    def audit_log(self) -> AuditLog:
        return AuditLog(self.audit, self.audit_lines_per_second)

    def without_acls(self) -> AclSet:
        """Return the decisions of a cluster that has no ACLs yet."""
        return AclSet(super_users=frozenset(self.super_users), allow_without_acl=self.allow_without_acl)

    def guard(
        self,
        acls: Callable[[], AclSet],
        needs: Needs,
        *,
        audit: AuditLog,
        token: str = "",
        verify: Verify | None = None,
    ) -> CallGuard | None:
        """Return what decides about calls over gRPC, see `CallGuard`, or None if ACLs are not enforced."""
        if not self.acls:
            return None
        rules = NameRules(self.tls_principal_mapping_rules)
        return CallGuard(acls, rules, needs, audit=audit, token=token, verify=verify)
