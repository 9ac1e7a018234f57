"""The address where a service listens, and the one it advertises to others."""

import itertools
import socket

import pytest

from kafscale.config.listeners import DEFAULT_ADDRESS
from kafscale.config.network import DEFAULTS, Address, HttpSettings, NetworkSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError

RPC, ADVERTISED, HTTP = (f"KAFSCALE_{name}_ADDR" for name in ("RPC", "RPC_ADVERTISED", "HTTP"))


def test_the_default_addresses_of_all_services_and_kafka_differ() -> None:
    addresses = [address for service in DEFAULTS.values() for address in (service.rpc, service.http)]
    assert {address.host for address in addresses} == {"127.0.0.1"}
    ports = [int(DEFAULT_ADDRESS.rpartition(":")[2]), *(address.port for address in addresses)]
    assert all(one != other for one, other in itertools.combinations(ports, 2))


@pytest.mark.parametrize("service", DEFAULTS)
def test_the_bound_address_is_advertised_by_default(service: str) -> None:
    settings = load(NetworkSettings, {})
    assert settings.advertised(service, settings.rpc(service).port) == str(DEFAULTS[service].rpc)


@pytest.mark.parametrize(
    ("environ", "port", "advertised"),
    [
        ({RPC: "10.0.0.1:0"}, 4711, "10.0.0.1:4711"),
        ({RPC: "[::1]:9000"}, 9000, "[::1]:9000"),
        ({RPC: ":9000", ADVERTISED: "storage-0.internal:9000"}, 9000, "storage-0.internal:9000"),
        ({ADVERTISED: "proxy:80"}, 9095, "proxy:80"),
        ({RPC: ":9095", ADVERTISED: "{hostname}:9095"}, 9095, f"{socket.gethostname()}:9095"),
    ],
)
def test_the_advertised_address_is_derived_from_the_settings(
    environ: dict[str, str], port: int, advertised: str
) -> None:
    assert load(NetworkSettings, environ).advertised("storage", port) == advertised


@pytest.mark.parametrize("everywhere", ["0.0.0.0:9095", ":9095", "[::]:9095"])
def test_on_all_interfaces_an_advertised_address_must_be_set(everywhere: str) -> None:
    with pytest.raises(ConfigError, match=f"set {ADVERTISED}"):
        load(NetworkSettings, {RPC: everywhere})


@pytest.mark.parametrize("advertised", ["0.0.0.0:1", ":1", "host:0"])
def test_an_advertised_address_is_one_to_connect_to(advertised: str) -> None:
    with pytest.raises(ConfigError, match=ADVERTISED):
        load(NetworkSettings, {RPC: ":1", ADVERTISED: advertised})


@pytest.mark.parametrize("name", [RPC, ADVERTISED, HTTP])
@pytest.mark.parametrize("value", ["9095", "host", "::1:9095", "host:65536"])
def test_an_invalid_address_is_refused_with_the_variables_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load(HttpSettings if name == HTTP else NetworkSettings, {name: value})


def test_all_interfaces_are_an_address_for_grpc() -> None:
    assert [Address("", 1).bindable, Address("0.0.0.0", 1).bindable, Address("a", 1).bindable] == [
        "[::]:1",
        "0.0.0.0:1",
        "a:1",
    ]


@pytest.mark.parametrize(
    ("given", "named"),
    [({"CERT"}, "KEY_FILE"), ({"KEY"}, "CERT_FILE"), ({"CA"}, "CERT_FILE"), ({"KEY", "CA"}, "CERT_FILE")],
)
def test_the_tls_files_of_the_http_port_must_be_set_together(given: set[str], named: str) -> None:
    with pytest.raises(ConfigError, match=f"KAFSCALE_HTTP_TLS_{named}"):
        load(HttpSettings, {f"KAFSCALE_HTTP_TLS_{name}_FILE": "some.pem" for name in given})
