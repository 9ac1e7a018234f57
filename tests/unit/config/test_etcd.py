"""Settings of etcd."""

from pathlib import Path

import pytest

from kafscale.config.etcd import EtcdSettings
from kafscale.config.settings import documented, load
from kafscale.errors import ConfigError
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.rpc.tls import RpcTls

ENDPOINTS = "KAFSCALE_ETCD_ENDPOINTS"
USER, PASSWORD = "KAFSCALE_ETCD_USERNAME", "KAFSCALE_ETCD_PASSWORD"
CA, CERT, KEY = (f"KAFSCALE_ETCD_TLS_{name}_FILE" for name in ("CA", "CERT", "KEY"))


def test_one_endpoint_is_enough() -> None:
    assert load(EtcdSettings, {ENDPOINTS: "etcd:2379"}).config() == EtcdConfig(endpoints=("etcd:2379",))


def test_everything_can_be_set() -> None:
    settings = load(
        EtcdSettings,
        {
            ENDPOINTS: "https://one.internal:2379, [::1]:2380 ,10.0.0.3:1/",
            USER: "kafscale",
            PASSWORD: "secret",
            CA: "ca.pem",
            CERT: "cert.pem",
            KEY: "key.pem",
            "KAFSCALE_ETCD_TIMEOUT_MS": "1500",
            "KAFSCALE_ETCD_HISTORY_MS": "900000",
        },
    )
    assert settings.config() == EtcdConfig(
        endpoints=("one.internal:2379", "[::1]:2380", "10.0.0.3:1"),
        username="kafscale",
        password="secret",
        tls=RpcTls(ca_file=Path("ca.pem"), cert_file=Path("cert.pem"), key_file=Path("key.pem")),
        timeout_seconds=1.5,
    )
    assert settings.history_ms == 900_000
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.config())


@pytest.mark.parametrize(
    "endpoints", ["etcd", "etcd:", "etcd:0", "etcd:65536", "ftp://etcd:1", "a:1,,b:2", "http://a:1/v3", "::1:2379"]
)
def test_an_invalid_list_of_addresses_is_refused_with_the_variables_name(endpoints: str) -> None:
    with pytest.raises(ConfigError, match=ENDPOINTS):
        load(EtcdSettings, {ENDPOINTS: endpoints})


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({USER: "kafscale"}, PASSWORD),
        ({PASSWORD: "secret"}, USER),
        ({CERT: "cert.pem", CA: "ca.pem"}, KEY),
        ({KEY: "key.pem", CA: "ca.pem"}, CERT),
        ({CERT: "cert.pem", KEY: "key.pem"}, CA),
        ({ENDPOINTS: "https://etcd:2379"}, CA),
        ({ENDPOINTS: "a:1,http://etcd:2379", CA: "ca.pem"}, ENDPOINTS),
        ({"KAFSCALE_ETCD_TIMEOUT_MS": "99"}, "KAFSCALE_ETCD_TIMEOUT_MS"),
        ({"KAFSCALE_ETCD_HISTORY_MS": "1000"}, "KAFSCALE_ETCD_HISTORY_MS"),
    ],
)
def test_contradictory_settings_are_refused(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(EtcdSettings, environ)


def test_without_endpoints_there_is_no_store() -> None:
    with pytest.raises(ConfigError, match=ENDPOINTS):
        load(EtcdSettings, {}).config()


def test_the_settings_are_printed_as_they_are_written() -> None:
    [(_, settings)] = documented([EtcdSettings])
    parser = next(found.parser for found in settings if found.env == ENDPOINTS)
    assert parser.show(parser.parse("http://a:1,b:2")) == "http://a:1,b:2"
