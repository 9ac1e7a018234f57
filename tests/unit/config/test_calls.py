"""Settings of calls between services."""

from pathlib import Path

import pytest

from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.tls import RpcTls

CA, CERT, KEY = (f"KAFSCALE_RPC_TLS_{name}_FILE" for name in ("CA", "CERT", "KEY"))


def test_by_default_the_transports_limits_apply_and_nothing_is_encrypted() -> None:
    settings = load(RpcSettings, {})
    assert settings.limits() == RpcLimits()
    assert settings.tls() is None


def test_every_limit_can_be_set() -> None:
    settings = load(
        RpcSettings,
        {
            "KAFSCALE_RPC_MAX_MESSAGE_BYTES": "100MB",
            "KAFSCALE_RPC_MAX_CALLS": "17",
            "KAFSCALE_RPC_MAX_WAITING_CALLS": "18",
            "KAFSCALE_RPC_MAX_CONNECTIONS": "19",
            "KAFSCALE_RPC_KEEPALIVE_MS": "2000",
            "KAFSCALE_RPC_KEEPALIVE_TIMEOUT_MS": "300",
            "KAFSCALE_RPC_CONNECT_TIMEOUT_MS": "400",
            "KAFSCALE_RPC_RECONNECT_BACKOFF_MAX_MS": "500",
            "KAFSCALE_RPC_DRAIN_TIMEOUT_MS": "600",
        },
    )
    assert settings.limits() == RpcLimits(
        max_message_bytes=100 << 20,
        max_calls=17,
        max_waiting_calls=18,
        max_connections=19,
        keepalive_seconds=2.0,
        keepalive_timeout_seconds=0.3,
        connect_seconds=0.4,
        longest_backoff_seconds=0.5,
        drain_seconds=0.6,
    )


def test_a_message_limit_below_a_64_mib_payload_is_refused() -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_RPC_MAX_MESSAGE_BYTES"):
        load(RpcSettings, {"KAFSCALE_RPC_MAX_MESSAGE_BYTES": "64MB"})


def test_tls_needs_a_ca_and_is_mutual_if_requested() -> None:
    assert load(RpcSettings, {CA: "ca.pem"}).tls() == RpcTls(ca_file=Path("ca.pem"))
    all_files = {CA: "ca.pem", CERT: "cert.pem", KEY: "key.pem"}
    mutual = {"KAFSCALE_RPC_TLS_CLIENT_AUTH": "required", "KAFSCALE_RPC_TLS_SERVER_NAME": "storage"}
    assert load(RpcSettings, all_files | mutual).tls() == RpcTls(
        ca_file=Path("ca.pem"),
        cert_file=Path("cert.pem"),
        key_file=Path("key.pem"),
        require_client_cert=True,
        server_name="storage",
    )


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({CA: "ca.pem", CERT: "cert.pem"}, KEY),
        ({CA: "ca.pem", KEY: "key.pem"}, CERT),
        ({CERT: "cert.pem", KEY: "key.pem"}, CA),
        ({CA: "ca.pem", "KAFSCALE_RPC_TLS_CLIENT_AUTH": "required"}, CERT),
        ({"KAFSCALE_RPC_TLS_SERVER_NAME": "storage"}, CA),
    ],
)
def test_an_incomplete_tls_configuration_stops_the_start(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(RpcSettings, environ)
