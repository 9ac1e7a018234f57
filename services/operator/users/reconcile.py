"""Reconciles a user with its KafscaleUser.

The mechanisms of the credentials are stored before the first change that depends on them. Passwords are only in Secrets
and in memory.
"""

from collections.abc import Collection

import trio

from kafscale.errors import KafscaleError
from kafscale.rpc.errors import StatusError
from services.operator.conditions import SYNCED, Complaint, reason_of
from services.operator.gateways import Gateway, is_refusal
from services.operator.kubernetes import ApiRefused
from services.operator.reconciler import Reconciler
from services.operator.resources import SECRET, USER, USER_FINALIZER, Object
from services.operator.users.desired import Desired, PasswordSource, identity
from services.operator.users.passwords import InvalidSecret, Password, generated_secret, owner_of, password_in
from services.operator.users.plan import (
    Action,
    CreateAcls,
    DeleteAcls,
    DeleteCredentials,
    Seen,
    SetCredentials,
    after,
    described,
    plan,
)
from services.operator.users.status import fields, observed

NOT_ENFORCED = "AclsNotEnforced"
_COUNTED = {
    CreateAcls: "create_acls",
    SetCredentials: "set_credentials",
    DeleteCredentials: "delete_credentials",
    DeleteAcls: "delete_acls",
}
_REASONS = {
    CreateAcls: "AclsCreated",
    SetCredentials: "PasswordSet",
    DeleteCredentials: "CredentialsDeleted",
    DeleteAcls: "AclsDeleted",
}
_FAULTS = (
    "SecretNotFound",
    "InvalidSecret",
    "Refused",
    NOT_ENFORCED,
    "Conflict",
    "ClusterNotFound",
    "ClusterAmbiguous",
    "Unauthenticated",
    "PermissionDenied",
)


class SecretGoing(KafscaleError):
    """The Secret of a former resource of the same name is still being deleted."""


class UserReconciler(Reconciler[Desired]):
    """Reconciles users."""

    KIND, FINALIZER, FAULTS = USER, USER_FINALIZER, _FAULTS

    def _desired(self, resource: Object, clusters: Collection[str]) -> Desired:
        return Desired.of(resource, clusters)

    def _identity(self, resource: Object, clusters: Collection[str]) -> tuple[str, str]:
        return identity(resource, clusters)

    def _named(self, desired: Desired) -> str:
        return f"user {desired.user}"

    def _fields(self, desired: Desired) -> Object:
        return fields(desired)

    async def _password(self, resource: Object, desired: Desired, source: PasswordSource) -> Password | Complaint:
        """Return the password, or why there is none. A missing Secret is created if it is the operator's."""
        try:
            secret = await self._kubernetes.get(SECRET, source.name)
            if secret is None and source.generated:
                secret = await self._kubernetes.create(SECRET, generated_secret(resource, desired, source))
                message = f"created the Secret {source.name} with a new password"
                await self._events.record(resource, "SecretCreated", message)
        except ApiRefused as error:
            if error.conflict:
                raise
            return Complaint("Refused", f"the API server refuses access to the Secret {source.name}: {error}")
        if secret is None:
            return Complaint("SecretNotFound", f"the Secret {source.name} does not exist in this namespace")
        owner = owner_of(secret)
        if source.generated and owner.get("uid") != resource["metadata"]["uid"]:
            if owner.get("name") == resource["metadata"]["name"]:
                raise SecretGoing(f"the Secret {source.name} of the former KafscaleUser is not deleted yet")
            message = f"the Secret {source.name} exists and is not of this resource; set passwordSecretRef or delete it"
            return Complaint("InvalidSecret", message)
        try:
            return password_in(secret, source)
        except InvalidSecret as error:
            return Complaint("InvalidSecret", str(error))

    async def _align_by(self, gateway: Gateway, resource: Object, desired: Desired) -> None:
        found = None if desired.source is None else await self._password(resource, desired, desired.source)
        seen = Seen(await gateway.credentials(desired.user), await gateway.acls(desired.user))
        noted = resource.get("status", {}).get("mechanisms", [])
        if not set(desired.mechanisms) <= set(noted):
            resource = await self._records.note(resource, {"mechanisms": sorted({*noted, *desired.mechanisms})})
        password = found if isinstance(found, Password) else None
        wanted = (
            {}
            if password is None
            else {mechanism: password.known(mechanism, desired.iterations) for mechanism in desired.mechanisms}
        )
        managed = noted if desired.source is None else seen.credentials
        actions = plan(wanted, desired.acls, seen, kept=desired.mechanisms, managed=managed)
        complaints = [found] if isinstance(found, Complaint) else []
        if seen.acls is None and desired.acls:
            message = "the gateways do not enforce ACLs, so those of the resource are not created; set KAFSCALE_ACLS"
            complaints.append(Complaint(NOT_ENFORCED, message))
        # The resource has not changed, so others changed the user.
        status = resource.get("status", {})
        repaired = (
            status.get("observedGeneration") == resource["metadata"]["generation"]
            and reason_of(status, SYNCED) == "AsWanted"
        )
        for action in actions:
            try:
                await _act(gateway, desired.user, action, password)
            except StatusError as error:
                if not is_refusal(error):
                    raise
                complaints.append(Complaint("Refused", str(error)))
                continue
            seen = after(seen, action)
            self._counters.actions[_COUNTED[type(action)]] += 1
            # A changed Secret is no drift.
            is_repair = repaired and not isinstance(action, SetCredentials)
            reason = "DriftRepaired" if is_repair else _REASONS[type(action)]
            await self._events.record(resource, reason, described(action))
        left = _left(noted, desired, seen)
        await self._records.report(resource, observed(desired, seen, _joined(complaints)), fields(desired, seen, left))

    async def _delete_by(self, gateway: Gateway, resource: Object, desired: Desired) -> str:
        seen = Seen(await gateway.credentials(desired.user), await gateway.acls(desired.user))
        noted = resource.get("status", {}).get("mechanisms", [])
        managed = noted if desired.source is None else seen.credentials
        actions = plan({}, frozenset(), seen, kept=(), managed=managed)
        for action in actions:
            await _act(gateway, desired.user, action, None)
            self._counters.actions[_COUNTED[type(action)]] += 1
        return f"user {desired.user}: {'; '.join(map(described, actions))}" if actions else ""


async def _act(gateway: Gateway, user: str, action: Action, password: Password | None) -> None:
    """Perform an action. ``password`` is needed to set credentials."""
    match action:
        case CreateAcls(rules):
            await gateway.create_acls(user, rules)
        case SetCredentials(credentials):
            if password is None:
                raise ValueError("credentials cannot be set without a password")
            new = [
                await trio.to_thread.run_sync(password.credential, mechanism, known)
                for mechanism, known in credentials.items()
            ]
            await gateway.set_credentials(user, new)
        case DeleteCredentials(mechanisms):
            await gateway.delete_credentials(user, mechanisms)
        case DeleteAcls(rules):
            await gateway.delete_acls(user, rules)


def _left(noted: Collection[str], desired: Desired, seen: Seen) -> list[str]:
    """Return the mechanisms whose credentials the resource sets, or still must delete."""
    return sorted({*desired.mechanisms, *(each for each in noted if each in seen.credentials)})


def _joined(complaints: list[Complaint]) -> Complaint | None:
    """Return one complaint, with the reason of the first and all messages."""
    if not complaints:
        return None
    return Complaint(complaints[0].reason, "; ".join(each.message for each in complaints))
