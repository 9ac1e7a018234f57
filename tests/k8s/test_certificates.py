"""The component `certificates`: what cert-manager stores is mounted where the settings name it, for the right hosts."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from tests.servers.kubernetes import KUBECTL, Kubernetes
from tests.support.k8s.built import CERTIFICATE_KEYS, WORKLOADS, Objects, build, environment, is_valid_for
from tests.support.k8s.live import OVERLAYS, SERVICES, Overlay, container

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An overlay with the component on top of `production`."""
    here = tmp_path.resolve()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "kafscale",
        "resources": [os.path.relpath(OVERLAYS / "production", here)],
        "components": [os.path.relpath(OVERLAYS.parent / "components" / "certificates", here)],
    }
    (here / "kustomization.yaml").write_text(json.dumps(kustomization))
    return here


@pytest.fixture
def objects(kubernetes: Kubernetes, directory: Path) -> Objects:
    """All objects of that overlay, by kind and name."""
    return build(kubernetes, directory)


def test_the_api_server_accepts_the_component(overlays: dict[str, Overlay], directory: Path) -> None:
    kubernetes = overlays["production"].kubernetes
    kubernetes.kubectl("apply", "-f", str(Path(__file__).parent / "cert-manager.yaml"))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    done = kubernetes.kubectl("apply", "--dry-run=server", "-k", str(directory))
    assert done.stderr == ""
    assert "certificate.cert-manager.io/kafscale-storage created" in done.stdout


def test_each_service_reads_the_secret_of_its_certificate(objects: Objects, service: str) -> None:
    certificate = objects["Certificate", f"kafscale-{service}"]["spec"]
    template = objects[WORKLOADS[service]]["spec"]["template"]
    [volume] = [volume for volume in template["spec"]["volumes"] if "secret" in volume]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    [mount] = [mount for mount in container(template)["volumeMounts"] if mount["name"] == volume["name"]]
    # The process runs as another user than root, in the group of the volume.
    assert volume["secret"]["defaultMode"] == 0o440
    made = environment(objects, template)
    tls = load(RpcSettings, made).tls()
    assert tls is not None
    assert tls.require_client_cert
    assert {str(tls.ca_file), str(tls.cert_file), str(tls.key_file)} == {
        f"{mount['mountPath']}/{key}" for key in CERTIFICATE_KEYS
    }
    names = certificate["dnsNames"]
    # That is the name which callers verify. The others are for callers that know only the Service.
    assert tls.server_name in names
    host = made["KAFSCALE_RPC_ADVERTISED_ADDR"].rpartition(":")[0]
    assert host == "10.0.0.7" or is_valid_for(names, host)
    selector = {"app.kubernetes.io/name": f"kafscale-{service}"}
    called = [
        name
        for (kind, name), each in objects.items()
        if kind == "Service" and each["spec"].get("selector", {}) == selector
    ]
    assert called
    assert all(is_valid_for(names, f"{name}.kafscale.svc") for name in called)
    assert {"server auth", "client auth"} <= set(certificate["usages"])


def test_one_ca_signs_all_certificates(objects: Objects) -> None:
    certificates = {name: each["spec"] for (kind, name), each in objects.items() if kind == "Certificate"}
    issuers = {name: each["spec"] for (kind, name), each in objects.items() if kind == "Issuer"}
    authority = certificates.pop("kafscale-ca")
    assert authority["isCA"]
    assert issuers[authority["issuerRef"]["name"]] == {"selfSigned": {}}
    assert certificates.keys() == {f"kafscale-{name}" for name in (*SERVICES, "console", "client")}
    for certificate in certificates.values():
        assert issuers[certificate["issuerRef"]["name"]] == {"ca": {"secretName": authority["secretName"]}}
    secrets = [each["secretName"] for each in (authority, *certificates.values())]
    assert len(set(secrets)) == len(secrets)
    for caller in ("console", "client"):
        assert "server auth" not in certificates[f"kafscale-{caller}"]["usages"]


def test_nothing_but_the_services_and_their_settings_changes(kubernetes: Kubernetes, objects: Objects) -> None:
    before = build(kubernetes, OVERLAYS / "production")
    added = {key for key in objects if key not in before}
    assert {kind for kind, _ in added} == {"Certificate", "Issuer", "ConfigMap"}
    changed = {key for key, each in before.items() if objects.get(key, each) != each}
    assert changed - {("CronJob", "kafscale-etcd-snapshots")} == set(WORKLOADS.values())


def test_the_documented_commands_fetch_the_clients_certificate(kubernetes: Kubernetes, tmp_path: Path) -> None:
    content = {key: f"-----BEGIN {key}-----\n" for key in CERTIFICATE_KEYS}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kafscale-client-tls"}, "stringData": content}
    kubernetes.apply(secret)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {KUBECTL.build()} --kubeconfig={kubernetes.kubeconfig} "$@"\n')
    kubectl.chmod(0o755)
    section = (ROOT / "docs/guides/kubernetes.md").read_text().partition("needs the client's certificate")[2]
    commands = [line[4:] for line in section.partition("\nThe component")[0].splitlines() if line.startswith("    ")]
    shown = subprocess.run(
        ["bash", "-euc", "\n".join([*commands, "env"])],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    ).stdout
    exported = dict(re.findall(r"^(KAFSCALE_\w+)=(.*)$", shown, re.MULTILINE))
    tls = load(RpcSettings, exported).tls()
    assert tls is not None
    assert tls.server_name == "kafscale.internal"
    named = {"ca.crt": tls.ca_file, "tls.crt": tls.cert_file, "tls.key": tls.key_file}
    assert {key: (tmp_path / str(file)).read_text() for key, file in named.items()} == content
