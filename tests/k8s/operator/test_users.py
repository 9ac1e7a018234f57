"""Users on a real API server, with a cluster that enforces ACLs: clients authenticate with passwords of Secrets.

The operator's certificate is allowed nothing, so all that it does it may do because of its admin token.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from tests.k8s.operator.operators import TOKEN, Namespace, running
from tests.servers.cluster import Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.kubernetes import Kubernetes
from tests.servers.minio import Minio
from tests.support.shell import LONG_SECONDS, once

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "operator.md"
_ADMIN_PASSWORD = "only-admins-know-this"
_READ_ORDERS = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["Describe", "Read"]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("with-users")


@pytest.fixture(scope="module")
def authority(directory: Path) -> trustme.CA:
    """A CA. The services have certificates of super users, the operator has one of a user without ACLs."""
    made = trustme.CA()
    made.cert_pem.write_to_path(directory / "ca.pem")
    for name, organization in (("services", "services"), ("operator", "elsewhere")):
        issued = made.issue_cert("127.0.0.1", organization_name=organization)
        issued.private_key_pem.write_to_path(directory / f"{name}.key")
        (directory / f"{name}.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    return made


def _certificate(directory: Path, name: str) -> dict[str, str]:
    return {
        "KAFSCALE_RPC_TLS_CERT_FILE": str(directory / f"{name}.pem"),
        "KAFSCALE_RPC_TLS_KEY_FILE": str(directory / f"{name}.key"),
    }


@pytest.fixture(scope="module")
def cluster(directory: Path, authority: trustme.CA, etcd: Etcd, minio: Minio) -> Iterator[Cluster]:
    del authority
    (directory / "password").write_text(_ADMIN_PASSWORD)
    (directory / "cluster").mkdir()
    env = {
        "KAFSCALE_ADMIN_TOKEN": TOKEN,
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:SASL_PLAINTEXT",
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512",
        "KAFSCALE_BOOTSTRAP_USER": "admin",
        "KAFSCALE_BOOTSTRAP_PASSWORD_FILE": str(directory / "password"),
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": "User:admin;User:services",
        "KAFSCALE_TLS_PRINCIPAL_MAPPING_RULES": "RULE:.*O=services.*/services/,DEFAULT",
        "KAFSCALE_RPC_TLS_CA_FILE": str(directory / "ca.pem"),
        "KAFSCALE_RPC_TLS_CLIENT_AUTH": "required",
        **_certificate(directory, "services"),
    }
    with running_cluster(directory / "cluster", etcd=etcd, minio=minio, env=env) as cluster:
        yield cluster


@pytest.fixture
def namespace(with_our_kinds: Kubernetes, cluster: Cluster, request: pytest.FixtureRequest) -> Namespace:
    """A new namespace for each test."""
    name = re.sub("[^a-z]+", "-", request.node.name)[:60].strip("-")
    return Namespace(with_our_kinds, name, cluster)


@pytest.fixture
def operator(namespace: Namespace, directory: Path, tmp_path: Path) -> Iterator[ServiceProcess]:
    operator = namespace.operator(0, tmp_path, **_certificate(directory, "operator"))
    with running(operator):
        yield operator


def test_a_user_with_a_generated_password_follows_its_resource(
    namespace: Namespace, cluster: Cluster, operator: ServiceProcess
) -> None:
    admin = _admin(cluster, "admin", _ADMIN_PASSWORD)
    others = _binding("User:bob", "bills", AclOperation.READ)
    for created in admin.create_acls([others]).values():
        created.result(LONG_SECONDS)
    for topic in admin.create_topics([NewTopic(name, 1) for name in ("orders", "bills")]).values():
        topic.result(LONG_SECONDS)
    namespace.apply("KafscaleUser", "ann", authentication={}, acls=[_READ_ORDERS])
    _await_synced(namespace, "ann")
    secret = _secret(namespace, "ann-credentials")
    assert set(secret) == {"username", "password", "sasl.jaas.config"}
    ann = _admin(cluster, secret["username"], secret["password"])
    assert set(ann.list_topics(timeout=LONG_SECONDS).topics) == {"orders"}
    assert _acls(admin, "User:ann") == {("orders", AclOperation.DESCRIBE), ("orders", AclOperation.READ)}
    namespace.apply(
        "KafscaleUser",
        "ann",
        authentication={},
        acls=[{"resource": {"type": "Topic", "name": "b", "patternType": "Prefixed"}, "operations": ["Describe"]}],
    )
    once("the ACLs are others", lambda: _acls(admin, "User:ann"), lambda acls: acls == {("b", AclOperation.DESCRIBE)})
    assert set(ann.list_topics(timeout=LONG_SECONDS).topics) == {"bills"}
    # Somebody else's ACL is deleted again, and a password that somebody else sets is replaced.
    for created in admin.create_acls([_binding("User:ann", "orders", AclOperation.WRITE)]).values():
        created.result(LONG_SECONDS)
    once("the ACL is deleted", lambda: namespace.events("ann"), lambda found: "DriftRepaired" in found)
    _set_password(admin, "ann", "other")
    once("the password is set again", lambda: _knows(cluster, "ann", secret["password"]), bool)
    # A deleted Secret is replaced with another password.
    namespace.kubectl("delete", "secret", "ann-credentials")
    namespace.kubectl("wait", "--for=create", "secret/ann-credentials", "--timeout=90s")
    password = _secret(namespace, "ann-credentials")["password"]
    assert password != secret["password"]
    once("the password is the new one", lambda: _knows(cluster, "ann", password), bool)
    assert not _knows(cluster, "ann", secret["password"])
    print(namespace.kubectl("get", "kafscaleusers").stdout, namespace.kubectl("describe", "ksu", "ann").stdout)
    shown = namespace.kubectl("get", "kafscaleusers,events", "-o", "json").stdout + operator.log.read_text()
    assert password not in shown
    assert secret["password"] not in shown
    namespace.kubectl("delete", "kafscaleuser", "ann", "--timeout=90s")
    assert not _knows(cluster, "ann", password)
    assert _acls(admin, "User:ann") == set()
    assert _acls(admin, "User:bob") == {("bills", AclOperation.READ)}
    namespace.kubectl("wait", "--for=delete", "secret/ann-credentials", "--timeout=90s")


def test_a_user_has_the_password_of_its_own_secret(
    namespace: Namespace, cluster: Cluster, operator: ServiceProcess
) -> None:
    del operator
    reference = {"name": "carl", "key": "word"}
    authentication = {"passwordSecretRef": reference, "mechanisms": ["SCRAM-SHA-512"]}
    namespace.apply("KafscaleUser", "carl", name="Carl_1", authentication=authentication)
    namespace.kubectl("wait", *_reason("SecretNotFound"), "kafscaleuser/carl", "--timeout=90s")
    namespace.kubectl("create", "secret", "generic", "carl", "--from-literal=word=first")
    _await_synced(namespace, "carl")
    assert _knows(cluster, "Carl_1", "first", "SCRAM-SHA-512")
    assert not _knows(cluster, "Carl_1", "first", "SCRAM-SHA-256")
    namespace.kubectl("patch", "secret", "carl", "--patch", json.dumps({"stringData": {"word": "second"}}))
    once("the password is the new one", lambda: _knows(cluster, "Carl_1", "second", "SCRAM-SHA-512"), bool)
    namespace.apply("KafscaleUser", "carl", name="Carl_1", authentication=authentication, deletionPolicy="Retain")
    once("the finalizer is gone", lambda: namespace.get("ksu", "carl")["metadata"].get("finalizers"), lambda f: not f)
    namespace.kubectl("delete", "kafscaleuser", "carl", "--timeout=90s")
    assert _knows(cluster, "Carl_1", "second", "SCRAM-SHA-512")
    assert _secret(namespace, "carl") == {"word": "second"}


def test_invalid_users_are_refused_with_the_name_of_the_field(namespace: Namespace) -> None:
    def acl(operation: str = "Read", host: str = "*", **resource: str) -> dict[str, Any]:
        return {"acls": [{"resource": resource, "operations": [operation], "host": host}]}

    invalid: dict[str, tuple[dict[str, Any], str, str]] = {
        "everybody": ({"name": "*"}, "spec.name", "User:* in ACLs means everybody"),
        "two-lines": ({"name": "a\nb"}, "spec.name", "cannot have control characters"),
        "fast": ({"authentication": {"iterations": 1}}, "spec.authentication.iterations", "4096"),
        "plain": ({"authentication": {"mechanisms": ["PLAIN"]}}, "spec.authentication.mechanisms", '"SCRAM-SHA-256"'),
        "odd": (acl("Write", type="Group", name="g"), "spec.acls[0].operations", "does not exist on resources"),
        "named": (acl("Create", type="Cluster", name="c"), "spec.acls[0].resource", "neither a name nor"),
        "unnamed": (acl(type="Topic"), "spec.acls[0].resource", "set the name of the resource"),
        "by-name": (acl(host="a.example", type="Topic", name="t"), "spec.acls[0].host", "an IP address"),
        "long-form": (acl(host="0:0::1", type="Topic", name="t"), "spec.acls[0].host", "canonical form"),
        "a" * 242: ({"authentication": {}}, "", "set authentication.passwordSecretRef"),
    }
    errors = namespace.refused([("KafscaleUser", name, spec) for name, (spec, _, _) in invalid.items()])
    print(errors)
    for name, (_, field, why) in invalid.items():
        [one] = [line for line in errors.splitlines() if f'"{name}" is invalid: ' in line]
        assert field in one
        assert why in one
    namespace.apply("KafscaleUser", "ann", name="Ann", **acl(host="::1", type="Topic", name="t"))
    assert "a user cannot be renamed" in namespace.refused([("KafscaleUser", "ann", {"name": "Bob"})])


def test_the_users_in_the_guide_are_accepted(namespace: Namespace) -> None:
    example = GUIDE.read_text().partition("### KafscaleUser\n\n```yaml\n")[2].partition("```")[0]
    accepted = namespace.kubectl("apply", "--dry-run=server", "-f", "-", stdin=example)
    assert accepted.stdout.count("created") == 2
    assert accepted.stderr == ""


def _await_synced(namespace: Namespace, name: str) -> None:
    namespace.kubectl("wait", "--for=condition=Synced", f"kafscaleuser/{name}", "--timeout=90s")


def _reason(reason: str) -> tuple[str]:
    return (f'--for=jsonpath={{.status.conditions[?(@.type=="Synced")].reason}}={reason}',)


def _secret(namespace: Namespace, name: str) -> dict[str, str]:
    return {key: b64decode(value).decode() for key, value in namespace.get("secret", name)["data"].items()}


def _admin(cluster: Cluster, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )


def _knows(cluster: Cluster, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
    """Return whether the user can authenticate with a password."""
    failures: list[ck.KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "error_cb": failures.append,
    }
    client = AdminClient(settings)

    def outcome() -> bool | None:
        client.poll(0)
        if any(each.code() == ck.KafkaError._AUTHENTICATION for each in failures):
            return False
        try:
            client.list_topics(timeout=2)
        except ck.KafkaException:
            return None
        return True

    return once("an answer to the authentication", outcome, lambda found: found is not None) is True


def _set_password(admin: AdminClient, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    for changed in admin.alter_user_scram_credentials([change]).values():
        changed.result(LONG_SECONDS)


def _binding(principal: str, topic: str, operation: AclOperation) -> AclBinding:
    pattern, permission = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, permission)


def _acls(admin: AdminClient, principal: str) -> set[tuple[str, AclOperation]]:
    """Return the names and operations of a principal's ACLs."""
    every: Any = None
    pattern, permission = ResourcePatternType.ANY, AclPermissionType.ANY
    wanted = AclBindingFilter(ResourceType.ANY, every, pattern, principal, every, AclOperation.ANY, permission)
    found = admin.describe_acls(wanted).result(LONG_SECONDS)
    return {(acl.name, acl.operation) for acl in found}
