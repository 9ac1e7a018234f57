"""The overlays on a real API server with its controllers: accepted, rolled out, spread, scaled and isolated."""

import json
import re
import socket
import sys
import tomllib
from pathlib import Path

import httpcore
import pytest
from confluent_kafka.admin import AdminClient

from kafscale.config.network import Address, HttpSettings, NetworkSettings
from kafscale.config.settings import GIB, MIB, documented
from kafscale.process.process import LAST_SECONDS, Loaded
from kafscale.process.startup import check_shared
from kafscale_tools.documents import generate as docs
from services.console import __main__ as console
from services.console.settings import ConsoleSettings
from services.coordinator import __main__ as coordinator
from services.coordinator.settings import CoordinatorSettings
from services.gateway import __main__ as gateway
from services.gateway.settings import GatewaySettings
from services.indexer import __main__ as indexer
from services.indexer.settings import IndexerSettings
from services.storage import __main__ as storage
from services.storage.settings import StorageSettings
from tests.k8s.networks import let_in, let_out
from tests.servers.cluster import running_cluster
from tests.servers.etcd import Etcd
from tests.servers.kubernetes import ZONES
from tests.servers.minio import IMAGE, Minio
from tests.support.k8s import processes
from tests.support.k8s.live import (
    NAME,
    SERVICES,
    WORKLOADS,
    Json,
    Overlay,
    container,
    labels_of,
    matches,
    outside,
    port_names,
)

ROOT = Path(__file__).parents[2]
ZONE = "topology.kubernetes.io/zone"
KAFSCALE = [sys.executable, "-c", "from kafscale_tools.cli.main import main; main()"]
PROCESSES = {"gateway": gateway, "storage": storage, "indexer": indexer, "coordinator": coordinator}
# Settings that bound memory, and how often each bound may be reached at the same time.
HELD: dict[str, list[tuple[type, str, int]]] = {
    "gateway": [(GatewaySettings, "request_memory_bytes", 1), (GatewaySettings, "reply_memory_bytes", 1)],
    "storage": [
        (StorageSettings, "cache_size", 1),
        (StorageSettings, "index_cache_size", 1),
        (StorageSettings, "buffer_bytes", 1),
        # The same amount again may wait.
        (StorageSettings, "staging_bytes", 2),
    ],
    "indexer": [(IndexerSettings, "decode_bytes", 4)],
    "coordinator": [(CoordinatorSettings, "group_queue_bytes", 1)],
}
# The only connections that are allowed, by port. `clients` and `monitoring` are namespaces with those labels.
ASKED = {
    "gateway": {
        "rpc": {"gateway", "console", "clients"},
        "inside": {"clients", "console"},
        "outside": {"anybody"},
        "http": {"monitoring"},
    },
    "storage": {"rpc": {"gateway", "clients", "coordinator", "storage"}, "http": {"monitoring"}},
    "indexer": {"rpc": {"gateway", "storage"}, "http": {"monitoring"}},
    "coordinator": {"rpc": {"gateway"}, "http": {"monitoring"}},
    "console": {"web": {"clients"}, "http": {"monitoring"}},
    "etcd": {"client": {*SERVICES, "etcd-snapshots"}, "peer": {"etcd"}, "metrics": {"monitoring"}},
    "minio": {"s3": {"storage", "indexer", "etcd-snapshots"}},
    "etcd-snapshots": {},
}


def test_an_overlay_is_applied_without_a_warning_and_without_later_differences(overlay: Overlay) -> None:
    assert overlay.said == ""
    assert overlay.differences() == ""


def test_all_pods_run_in_a_restricted_namespace(overlay: Overlay) -> None:
    labels = overlay.kubernetes.json("get", "namespace", overlay.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    loose = overlay.kubernetes.kubectl("run", "loose", "--image=loose", f"--namespace={overlay.namespace}", check=False)
    assert loose.returncode != 0
    assert 'violates PodSecurity "restricted' in loose.stderr
    phases = {(pod["metadata"]["labels"][NAME], pod["status"]["phase"]) for pod in overlay.items("pods")}
    # The cron job's pod may exist if its hour has come.
    snapshots = {(name, phase) for name, phase in phases if name == "kafscale-etcd-snapshots"}
    assert phases - snapshots == {
        (name, "Running") for name in overlay.templates() if name != "kafscale-etcd-snapshots"
    }
    assert [event["message"] for event in overlay.items("events") if event["reason"] == "FailedCreate"] == []


def test_pods_of_a_service_are_in_different_zones(overlays: dict[str, Overlay]) -> None:
    overlay = overlays["production"]
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in overlay.kubernetes.items("nodes")}
    for service in (*SERVICES, "etcd"):
        used = [zones[pod["spec"]["nodeName"]] for pod in overlay.pods(service)]
        assert len(used) >= 2
        assert len(set(used)) == min(len(used), len(ZONES)), service


def test_applying_an_overlay_again_keeps_the_autoscalers_replicas(overlays: dict[str, Overlay]) -> None:
    overlay = overlays["production"]
    assert [s for s in SERVICES if "replicas" in _applied(overlay.workload(s))["spec"]] == []
    # The autoscaler's controller starts more pods, as under load, because there are no measurements here.
    for service in SERVICES:
        overlay.kubectl("patch", "hpa", f"kafscale-{service}", "--patch", '{"spec": {"minReplicas": 4}}')
    for service in SERVICES:
        what = f"{overlay.workload(service)['kind'].lower()}/kafscale-{service}"
        overlay.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=4", what, "--timeout=120s")

    overlay.apply()

    assert all(scaler["spec"]["minReplicas"] < 4 for scaler in overlay.items("hpa"))
    assert [overlay.workload(service)["spec"]["replicas"] for service in SERVICES] == [4] * len(SERVICES)
    assert [len(overlay.pods(service)) for service in SERVICES] == [4] * len(SERVICES)


def test_autoscalers_use_cpu_and_a_metric_that_their_service_exposes(overlay: Overlay) -> None:
    shown = {
        (metric.name, service): metric.kind
        for group in docs.METRICS
        for metric in group.metrics
        for service in group.services
    }
    scalers = overlay.items("hpa")
    assert len(scalers) == len(SERVICES)
    for scaler in scalers:
        service = scaler["spec"]["scaleTargetRef"]["name"].removeprefix("kafscale-")
        cpu, own = scaler["spec"]["metrics"]
        # A share of one core, independent of an overlay's requests.
        assert cpu["resource"] == {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "700m"}}
        assert shown[own["pods"]["metric"]["name"], service] == "gauge"


def test_one_pod_of_each_kind_may_be_evicted_at_a_time(overlays: dict[str, Overlay]) -> None:
    overlay = overlays["production"]
    names = {budget["metadata"]["name"] for budget in overlay.items("pdb")}
    assert names == {f"kafscale-{name}" for name in WORKLOADS}
    for name in names:
        overlay.kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", f"pdb/{name}", "--timeout=120s")


def test_network_policies_allow_exactly_the_needed_connections(overlay: Overlay) -> None:
    """Labels and ports exist, and each connection is allowed at both ends."""
    templates = {name.removeprefix("kafscale-"): template for name, template in overlay.templates().items()}
    policies = overlay.items("networkpolicies")
    for policy in policies:
        assert any(matches(policy["spec"]["podSelector"], labels_of(template)) for template in templates.values())
    for asked, template in templates.items():
        wanted = {port: askers for port, askers in ASKED[asked].items() if port in port_names(template)}
        assert let_in(policies, templates, asked) == wanted
    for asker in templates:
        wanted_out = {
            (asked, port)
            for asked in templates
            for port, askers in ASKED[asked].items()
            if asker in askers and port in port_names(templates[asked])
        }
        assert let_out(policies, templates, asker) == wanted_out


def test_no_pod_has_an_api_token_or_a_role(overlay: Overlay) -> None:
    assert overlay.items("rolebindings") == []
    for template in overlay.templates().values():
        assert template["spec"]["automountServiceAccountToken"] is False
        assert template["spec"]["enableServiceLinks"] is False
    accounts = {template["spec"].get("serviceAccountName", "default") for template in overlay.templates().values()}
    for account in accounts - {"default"}:
        who = f"system:serviceaccount:{overlay.namespace}:{account}"
        allowed = overlay.kubectl("auth", "can-i", "--list", "--no-headers", f"--as={who}")
        assert "selfsubjectaccessreviews" in allowed
        assert re.findall(r"^(?:\*|pods|secrets|configmaps|statefulsets|leases)\S* ", allowed, re.MULTILINE) == []
    assert not [
        volume["name"]
        for pod in overlay.items("pods")
        for volume in pod["spec"]["volumes"]
        if volume["name"].startswith("kube-api-access")
    ]


def test_the_cron_job_takes_a_snapshot_of_etcd(overlay: Overlay) -> None:
    overlay.kubectl("create", "job", "by-hand", "--from=cronjob/kafscale-etcd-snapshots")
    overlay.kubectl("wait", "--for=condition=Complete", "job/by-hand", "--timeout=120s")
    overlay.kubectl("delete", "job", "by-hand")


def test_everything_is_stopped_restored_and_started_with_the_documented_commands(
    overlays: dict[str, Overlay], tmp_path: Path
) -> None:
    overlay = overlays["production"]
    member = overlay.environment({"metadata": {"name": ""}}, container(overlay.workload("etcd")["spec"]["template"]))
    section = (ROOT / "docs" / "guides" / "kubernetes.md").read_text().partition("### Restoring one")[2]
    steps = [step.split() for step in re.findall(r"^ +kubectl (.*)$", section.partition("\n## ")[0], re.MULTILINE)]
    stops = [step for step in steps if "--replicas=0" in step]
    assert steps[: len(stops)] == stops
    for step in stops:
        overlay.kubectl(*step)
    ended = [step for step in steps if step[:2] == ["wait", "--for=delete"]]
    assert steps[len(stops) : len(stops) + len(ended)] == ended
    assert {step[3] for step in ended} == {f"--selector={NAME}=kafscale-{name}" for name in (*SERVICES, "etcd")}
    for step in steps[len(stops) :]:
        if step[0] == "delete":
            for number in range(3):
                job = overlay.get("job", step[2 + number])["spec"]["template"]
                wanted = {
                    f"--name=kafscale-etcd-{number}",
                    f"--data-dir={member['ETCD_DATA_DIR']}",
                    f"--initial-cluster={member['ETCD_INITIAL_CLUSTER']}",
                    "--bump-revision=1000000000",
                    "--mark-compacted",
                }
                assert wanted <= set(container(job)["command"])
                claims = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in job["spec"]["volumes"]]
                assert f"data-kafscale-etcd-{number}" in claims
            processes.set_aside(job["spec"]["initContainers"][1], tmp_path)
        if step[:2] == ["rollout", "status"]:
            # Nothing else runs before etcd, whatever was applied meanwhile.
            assert [overlay.workload(name)["spec"]["replicas"] for name in SERVICES] == [0] * len(SERVICES)
        overlay.kubectl(*step)
    overlay.await_replicas()
    assert len(overlay.pods("etcd")) == 3
    assert overlay.get("cronjob", "kafscale-etcd-snapshots")["spec"]["suspend"] is False


def test_scraped_services_have_the_port_and_the_alerts_match(overlays: dict[str, Overlay]) -> None:
    overlay = overlays["production"]
    for monitor in overlay.items("servicemonitors"):
        [endpoint] = monitor["spec"]["endpoints"]
        scraped = [
            s for s in overlay.items("services") if matches(monitor["spec"]["selector"], s["metadata"]["labels"])
        ]
        with_port = [s for s in scraped if endpoint["port"] in [port["name"] for port in s["spec"]["ports"]]]
        # The alert KafscaleInstanceDown uses the job's name, which is the Service's.
        assert all("kafscale" in service["metadata"]["name"] for service in with_port)
        wanted = monitor["spec"]["selector"].get("matchExpressions", [{"values": ["kafscale-etcd"]}])[0]["values"]
        assert sorted(service["metadata"]["name"] for service in with_port) == sorted(wanted)
    [rule] = overlay.items("prometheusrules")
    named = [alert["alert"] for group in rule["spec"]["groups"] for alert in group["rules"]]
    ours = (ROOT / "monitoring" / "alerts.yaml").read_text()
    assert named == re.findall(r"- alert: (\w+)", ours)
    # `python -m kafscale_tools.documents.generate --check` keeps their texts equal.
    assert "k8s/components/monitoring/prometheus-rule.yaml" in docs.DOCUMENTS


@pytest.mark.parametrize("name", ["production", "dev"])
def test_clients_outside_reach_every_gateway_that_the_autoscaler_may_start(
    name: str, overlays: dict[str, Overlay]
) -> None:
    overlay = overlays[name]
    most = overlay.get("hpa", "kafscale-gateway")["spec"]["maxReplicas"]
    services = outside(overlay.items("services"))
    [template] = [overlay.workload("gateway")["spec"]["template"]]
    for ordinal in range(most):
        # A pod as the StatefulSet's controller creates it.
        pod = {
            "metadata": {
                "name": f"kafscale-gateway-{ordinal}",
                "namespace": overlay.namespace,
                "labels": {"apps.kubernetes.io/pod-index": str(ordinal)},
            }
        }
        made = overlay.environment(pod, container(template))
        assert made["KAFSCALE_BROKER_ID"] == str(ordinal)
        advertised = made["KAFSCALE_ADVERTISED_LISTENERS"].rpartition("OUTSIDE://")[2]
        service = services[f"kafscale-gateway-{ordinal}"]
        [port] = service["spec"]["ports"]
        assert port["targetPort"] in port_names(template)
        if service["spec"]["type"] == "NodePort":
            assert advertised == f"localhost:{port['nodePort']}"
        else:
            host = service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
            assert advertised == f"{host}:{port['port']}"


def test_images_have_this_version_and_the_same_etcd(overlay: Overlay) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    used = {
        each["image"]
        for template in overlay.templates().values()
        for each in (*template["spec"].get("initContainers", []), *template["spec"]["containers"])
    }
    [etcd] = [image for image in used if "/etcd:" in image]
    assert used - {etcd} == {f"kafscale:{version}", IMAGE} - ({IMAGE} if overlay.name == "production" else set())


def _applied(workload: Json) -> Json:
    """Return the manifest's part of a workload."""
    written: Json = json.loads(workload["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    return written


def test_every_variable_in_a_pod_is_a_setting_of_its_process(overlay: Overlay, service: str) -> None:
    for pod in overlay.pods(service):
        main = container(pod)
        assert main["command"] == ["python", "-m", f"services.{service}"]
        made = overlay.environment(pod, main)
        assert [value for value in made.values() if "$(" in value] == []
        read = {declared.env for _, found in documented(PROCESSES[service].SETTINGS) for declared in found}
        assert {name for name in made if name.startswith("KAFSCALE_")} <= read
        settings = Loaded(PROCESSES[service].SETTINGS, made)
        check_shared(settings)
        # Others reach it, and kubelets probe it, where it listens.
        network, ports = settings[NetworkSettings], port_names(pod)
        assert network.rpc(service).anywhere
        assert network.rpc(service).port == ports["rpc"]
        assert network.advertised(service, ports["rpc"]).rpartition(":")[2] == str(ports["rpc"])
        assert settings[HttpSettings].address(service) == Address("", ports["http"])


def test_the_console_asks_the_gateways_and_listens_at_its_ports(overlay: Overlay) -> None:
    [pod] = overlay.pods("console")
    main, ports = container(pod), port_names(pod)
    assert main["command"] == ["python", "-m", "services.console"]
    settings = Loaded(console.SETTINGS, overlay.environment(pod, main))
    own = settings[ConsoleSettings]
    assert (own.console_addr, own.signs_in) == (Address("", ports["web"]), overlay.name == "production")
    assert settings[HttpSettings].address("console") == Address("", ports["http"])
    [server] = own.admin_servers
    name, _, port = server.partition(":")
    asked = overlay.get("service", name)["spec"]
    assert asked["selector"] == {NAME: "kafscale-gateway", **asked["selector"]}
    assert int(port) in [each["port"] for each in asked["ports"] if each["targetPort"] == "rpc"]


def test_each_pod_advertises_its_own_address(overlay: Overlay, service: str) -> None:
    pods = overlay.pods(service)
    addresses = [overlay.environment(pod, container(pod))["KAFSCALE_RPC_ADVERTISED_ADDR"] for pod in pods]
    assert len(set(addresses)) == len(pods)
    for pod, address in zip(pods, addresses, strict=True):
        host = address.rpartition(":")[0]
        if host == pod["status"]["podIP"]:
            assert overlay.workload(service)["kind"] == "Deployment"
        else:
            # The name from the headless Service of the StatefulSet, also while the pod is not ready.
            assert host == f"{pod['metadata']['name']}.{pod['spec']['subdomain']}.{overlay.namespace}.svc"
            headless = overlay.get("service", pod["spec"]["subdomain"])["spec"]
            assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
            assert matches({"matchLabels": headless["selector"]}, labels_of(pod))


def test_every_value_of_a_config_map_is_used_by_a_pod(overlay: Overlay) -> None:
    read = {
        declared.env
        for process in (*PROCESSES.values(), console)
        for _, found in documented(process.SETTINGS)
        for declared in found
    }
    configs = [
        config
        for config in (*overlay.items("configmaps"), *overlay.items("secrets"))
        if config["metadata"]["name"] != "kube-root-ca.crt"
    ]
    assert {name for config in configs for name in config["data"]} <= read
    sources = {
        next(iter(reference.values()))["name"]
        for template in overlay.templates().values()
        for each in template["spec"]["containers"]
        for source in each.get("envFrom", [])
        for reference in [source]
    }
    assert {config["metadata"]["name"] for config in configs} <= sources


def test_the_grace_period_of_a_pod_covers_the_stop_of_its_process(overlay: Overlay, service: str) -> None:
    [pod, *_] = overlay.pods(service)
    settings = Loaded(PROCESSES[service].SETTINGS, overlay.environment(pod, container(pod)))
    before = container(pod).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    longest = before + PROCESSES[service].grace_ms(settings) / 1000 + LAST_SECONDS
    assert longest <= pod["spec"]["terminationGracePeriodSeconds"]


def test_the_memory_bounds_of_a_service_fit_into_its_limit(overlay: Overlay) -> None:
    for service, bounds in HELD.items():
        [pod, *_] = overlay.pods(service)
        settings = Loaded(PROCESSES[service].SETTINGS, overlay.environment(pod, container(pod)))
        held = sum(factor * getattr(settings[cls], name) for cls, name, factor in bounds)
        limit = container(pod)["resources"]["limits"]["memory"]
        assert held + 300 * MIB <= int(limit.removesuffix("Gi")) * GIB, service


def test_gateways_have_an_internal_and_an_external_listener(overlay: Overlay) -> None:
    for pod in overlay.pods("gateway"):
        settings = Loaded(PROCESSES["gateway"].SETTINGS, overlay.environment(pod, container(pod)))
        inside, outer = settings[GatewaySettings].resolve()
        name = pod["metadata"]["name"]
        assert (inside.name, inside.port) == ("INSIDE", port_names(pod)["inside"])
        assert inside.advertised_host == f"{name}.kafscale-gateway.{overlay.namespace}.svc"
        assert (outer.name, outer.port) == ("OUTSIDE", port_names(pod)["outside"])


def test_topics_are_auto_created_in_dev_but_not_in_production(overlays: dict[str, Overlay]) -> None:
    for name, creates in (("production", False), ("dev", True)):
        pod = overlays[name].pods("gateway")[0]
        settings = Loaded(PROCESSES["gateway"].SETTINGS, overlays[name].environment(pod, container(pod)))
        assert settings[GatewaySettings].auto_create_topics is creates


def test_probes_use_existing_ports_and_paths(overlay: Overlay) -> None:
    for name, template in overlay.templates().items():
        for each in template["spec"]["containers"]:
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if name.removeprefix("kafscale-") in WORKLOADS:
                    assert each[kind]["httpGet"]["port"] in port_names(template)
        if name.removeprefix("kafscale-") in (*SERVICES, "console"):
            paths = [container(template)[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe")]
            assert paths == ["/healthz", "/readyz"]


def test_processes_start_with_these_environments_and_stop_within_their_grace_period(
    overlays: dict[str, Overlay], etcd: Etcd, minio: Minio, tmp_path: Path
) -> None:
    overlay = overlays["dev"]
    with running_cluster(
        tmp_path, gateways=0, storages=0, indexers=0, coordinators=0, etcd=etcd, minio=minio
    ) as cluster:
        times = {}
        for service in SERVICES:
            [pod] = overlay.pods(service)
            started = processes.add(cluster, service, overlay.environment(pod, container(pod)))
            times[started.name] = pod["spec"]["terminationGracePeriodSeconds"]
            started.start()
        for started in cluster.processes:
            started.await_ready()
        backup = container(overlay.templates()["kafscale-etcd-snapshots"], "backup")
        settings = overlay.environment({}, backup)
        settings |= {**cluster.env, "KAFSCALE_S3_NAMESPACE": settings["KAFSCALE_S3_NAMESPACE"]}
        assert "SNAPSHOT" in processes.run([*KAFSCALE, *backup["command"][1:]], settings)
        [front] = cluster.gateways
        for name in ("INSIDE", "OUTSIDE"):
            address = processes.listener(front, name)
            brokers = AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers
            assert {number: f"{broker.host}:{broker.port}" for number, broker in brokers.items()} == {0: address}
        host, _, port = processes.listener(front, "OUTSIDE").partition(":")
        with socket.create_connection((host, int(port))):
            assert front.process.stop(timeout=times[front.name]) == 0
        for started in (*cluster.storages, *cluster.indexers, *cluster.coordinators):
            assert started.process.stop(timeout=times[started.name]) == 0


def test_etcd_starts_with_this_environment_and_its_snapshot_is_stored_and_restored(
    overlays: dict[str, Overlay], minio: Minio, tmp_path: Path
) -> None:
    overlay = overlays["dev"]
    [pod] = overlay.pods("etcd")
    environment = overlay.environment(pod, container(pod))
    data = tmp_path / "data"
    with processes.etcd_member(data, environment, environment["ETCD_DATA_DIR"]) as (client, health):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container(pod)[probe]["httpGet"]["path"]
            assert httpcore.request("GET", health + path).status == 200
        (tmp_path / "etcd.db").write_bytes(processes.snapshot(client))
    template = overlay.templates()["kafscale-etcd-snapshots"]
    [save], store = template["spec"]["initContainers"], container(template)
    written, kept = save["command"][-1], store["command"]
    assert (save["command"][:-1], kept[3]) == (["etcdctl", "snapshot", "save"], written)
    assert [mount["mountPath"] for mount in (*save["volumeMounts"], *store["volumeMounts"])] == ["/snapshot"] * 2
    settings = {**overlay.environment({}, store), **minio.broker_settings()}
    stored = processes.run([*KAFSCALE, *(a.replace(written, str(tmp_path / "etcd.db")) for a in kept[1:])], settings)
    [name] = processes.run([*KAFSCALE, "etcd-snapshot", "list"], settings).split()
    assert stored.startswith(f"stored {name}:")
    processes.run([*KAFSCALE, "etcd-snapshot", "fetch", "latest", str(tmp_path / "back.db")], settings)
    assert (tmp_path / "back.db").read_bytes() == (tmp_path / "etcd.db").read_bytes()
