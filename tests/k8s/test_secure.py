"""The overlay `secure`: settings, the files that they name, certificates, probes and policies."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from kafscale.config.access import AccessSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.etcd import EtcdSettings
from kafscale.config.network import HttpSettings
from kafscale.process.process import Loaded
from kafscale.process.startup import check_callers, check_shared
from kafscale.security.principals import NameRules, Principal, user
from services.console import __main__ as console
from services.console.settings import ConsoleSettings
from services.coordinator import __main__ as coordinator
from services.gateway import __main__ as gateway
from services.gateway.settings import GatewaySettings
from services.indexer import __main__ as indexer
from services.storage import __main__ as storage
from tests.servers.kubernetes import Kubernetes
from tests.support.k8s.built import CERTIFICATE_KEYS, WORKLOADS, Objects, build, environment, is_valid_for
from tests.support.k8s.live import OVERLAYS, Json, Overlay, container

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "production.md"
PROCESSES = {"gateway": gateway, "storage": storage, "indexer": indexer, "coordinator": coordinator}
_ACCESS = {"gateway": GatewaySettings}
# What workloads read that do not read all settings. The job's container `store` reads none.
_READ = {
    "kafscale-etcd-snapshots": ("ETCD", "KAFSCALE_ETCD"),
    "kafscale-console": ("KAFSCALE_CONSOLE", "KAFSCALE_HTTP", "KAFSCALE_RPC"),
}


@pytest.fixture
def objects(kubernetes: Kubernetes) -> Objects:
    return build(kubernetes, OVERLAYS / "secure")


def _settings(objects: Objects, service: str) -> Loaded:
    return Loaded(PROCESSES[service].SETTINGS, environment(objects, _template(objects, service)))


def _template(objects: Objects, service: str) -> Json:
    template: Json = objects[WORKLOADS[service]]["spec"]["template"]
    return template


def _certificate(objects: Objects, name: str) -> Json:
    certificate: Json = objects["Certificate", name]["spec"]
    return certificate


def test_the_api_server_accepts_the_overlay(overlays: dict[str, Overlay]) -> None:
    kubernetes = overlays["production"].kubernetes
    kubernetes.kubectl("apply", "-f", str(Path(__file__).parent / "cert-manager.yaml"))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    done = kubernetes.kubectl("apply", "--dry-run=server", "-k", str(OVERLAYS / "secure"))
    assert done.stderr == ""
    assert "statefulset.apps/kafscale-gateway configured" in done.stdout


def test_every_process_enforces_acls_and_accepts_only_tls(objects: Objects, service: str) -> None:
    settings = _settings(objects, service)
    check_shared(settings)
    access = settings[_ACCESS.get(service, AccessSettings)]
    check_callers(settings, access)
    assert access.acls
    tls = settings[RpcSettings].tls()
    assert tls is not None
    assert tls.require_client_cert
    assert settings[HttpSettings].http_tls_cert_file is not None
    assert settings[EtcdSettings].tls_cert_file is not None

    names = NameRules(access.tls_principal_mapping_rules)

    def principal(certificate: str) -> Principal:
        return names.user_of(f"CN={_certificate(objects, certificate)['commonName']}")

    assert principal(f"kafscale-{service}") in access.super_users
    assert principal("kafscale-client") not in access.super_users


def test_users_sign_in_at_the_console_by_https_and_it_has_no_rights_of_its_own(objects: Objects) -> None:
    template = _template(objects, "console")
    settings = Loaded(console.SETTINGS, environment(objects, template))
    own = settings[ConsoleSettings]
    assert (own.scheme, own.signs_in, own.token()) == ("https", True, "")
    assert set(own.console_hosts) <= set(_certificate(objects, "kafscale-web")["dnsNames"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(template)[probe]["httpGet"]["scheme"] == "HTTPS"
    assert settings[HttpSettings].http_tls_cert_file is not None
    tls = settings[RpcSettings].tls()
    assert tls is not None
    assert tls.server_name in _certificate(objects, "kafscale-gateway")["dnsNames"]
    access = _settings(objects, "gateway")[GatewaySettings]
    name = _certificate(objects, "kafscale-console")["commonName"]
    principal = NameRules(access.tls_principal_mapping_rules).user_of(f"CN={name}")
    assert principal not in access.super_users


def test_kafka_listeners_have_tls_and_authentication_and_secrets_come_from_files(objects: Objects) -> None:
    settings = _settings(objects, "gateway")[GatewaySettings]
    listeners = settings.resolve()
    assert {each.name for each in listeners} == {"INSIDE", "OUTSIDE"}
    assert {each.protocol for each in listeners} == {"SASL_SSL"}
    hosts = {each.advertised_host for each in listeners} | {"kafscale.kafscale.svc"}
    names = _certificate(objects, "kafscale-kafka")["dnsNames"]
    assert [host for host in hosts if not is_valid_for(names, str(host))] == []
    assert user(str(settings.bootstrap_user)) in settings.super_users
    variables = {each["name"] for each in container(_template(objects, "gateway"))["env"]}
    assert not variables & {"KAFSCALE_ADMIN_TOKEN", "KAFSCALE_BOOTSTRAP_PASSWORD"}
    assert settings.admin_token_file is not None
    assert settings.bootstrap_password_file is not None


def test_each_file_that_a_setting_names_is_in_a_volume(kubernetes: Kubernetes, objects: Objects) -> None:
    made = {
        each["spec"]["secretName"]: CERTIFICATE_KEYS for (kind, _), each in objects.items() if kind == "Certificate"
    }
    made |= dict(_documented_secrets(kubernetes))
    checked = set()
    for workload, where in _pods(objects):
        volumes = {volume["name"]: volume for volume in where["volumes"]}
        for each in (*where.get("initContainers", []), *where["containers"]):
            mounts = {mount["mountPath"]: volumes.get(mount["name"]) for mount in each.get("volumeMounts", [])}
            variables = {variable["name"]: variable.get("value", "") for variable in each.get("env", [])}
            for source in each.get("envFrom", []):
                if "configMapRef" in source and not source["configMapRef"].get("optional"):
                    variables |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
            read = _READ.get(workload, ("ETCD", "KAFSCALE"))
            for name, value in variables.items():
                if name.startswith(read) and value.startswith("/etc/") and each["name"] != "store":
                    path = PurePosixPath(value)
                    volume = mounts[str(path.parent)]
                    assert volume is not None
                    assert path.name in _files(volume, made), (workload, each["name"], name)
                    checked.add(each["name"])
    assert checked == {*PROCESSES, "console", "etcd", "save", "backup"}


def _pods(objects: Objects) -> Iterator[tuple[str, Json]]:
    """Yield the name and the specification of the pods of each workload."""
    for (kind, name), each in objects.items():
        if kind in ("StatefulSet", "Deployment"):
            yield name, each["spec"]["template"]["spec"]
        elif kind == "CronJob":
            yield name, each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def _files(volume: Json, made: dict[str, set[str]]) -> set[str]:
    """Return the names of the files in a volume, which its group may read. ``made``: the keys of each Secret."""
    if "secret" in volume:
        assert volume["secret"]["defaultMode"] == 0o440
        return made[volume["secret"]["secretName"]]
    assert volume["projected"]["defaultMode"] == 0o440
    found = set()
    for source in volume["projected"]["sources"]:
        for item in source["secret"]["items"]:
            assert item["key"] in made[source["secret"]["name"]]
            found.add(item["path"])
    return found


def _documented_secrets(kubernetes: Kubernetes) -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the keys of each Secret that the guide makes."""
    text = GUIDE.read_text().replace("\\\n", " ")
    for command in re.findall(r"^    kubectl (create secret .+)$", text, re.MULTILINE):
        made = kubernetes.json(*shlex.split(command), "--dry-run=client")
        yield made["metadata"]["name"], set(made["data"])


def test_probes_and_prometheus_use_https(objects: Objects, service: str) -> None:
    main = container(_template(objects, service))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert main[probe]["httpGet"]["scheme"] == "HTTPS"
    [endpoint] = objects["ServiceMonitor", "kafscale"]["spec"]["endpoints"]
    certificate = _certificate(objects, "kafscale-http")
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] in certificate["dnsNames"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == certificate["secretName"]


def test_etcd_accepts_only_clients_with_a_certificate(objects: Objects) -> None:
    main = container(objects["StatefulSet", "kafscale-etcd"]["spec"]["template"])
    variables = {each["name"]: each.get("value", "") for each in main["env"]}
    assert variables["ETCD_CLIENT_CERT_AUTH"] == "true"
    assert variables["ETCD_LISTEN_CLIENT_URLS"].startswith("https:")
    names = _certificate(objects, "kafscale-etcd")["dnsNames"]
    endpoints = _settings(objects, "storage")[EtcdSettings].endpoints
    assert [each for each in endpoints if not is_valid_for(names, each.address.rpartition(":")[0])] == []
    assert {each.scheme for each in endpoints} <= {"", "https"}


def test_a_ca_signs_for_one_purpose(objects: Objects) -> None:
    signers = {
        name: each["spec"]["issuerRef"]["name"]
        for (kind, name), each in objects.items()
        if kind == "Certificate" and not each["spec"].get("isCA")
    }
    assert {name: signer for name, signer in signers.items() if signer != "kafscale-ca"} == {
        "kafscale-kafka": "kafscale-kafka-ca",
        "kafscale-web": "kafscale-web-ca",
        "kafscale-http": "kafscale-http-ca",
        "kafscale-etcd": "kafscale-etcd-ca",
        "kafscale-etcd-user": "kafscale-etcd-ca",
    }


def test_network_policies_are_those_of_production(kubernetes: Kubernetes, objects: Objects) -> None:
    before = build(kubernetes, OVERLAYS / "production")
    policies = {key: each for key, each in objects.items() if key[0] == "NetworkPolicy"}
    assert policies == {key: each for key, each in before.items() if key[0] == "NetworkPolicy"}
