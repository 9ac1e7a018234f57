import socket

import pytest

from kafscale.config.listeners import Listener, ListenerSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError


def listeners(**variables: str) -> tuple[Listener, ...]:
    return load(ListenerSettings, {f"KAFSCALE_{name.upper()}": value for name, value in variables.items()}).resolve()


def test_the_default_is_loopback_9092() -> None:
    assert listeners() == (Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092),)


def test_one_address_configures_one_listener() -> None:
    assert listeners(broker_addr="0.0.0.0:19092", advertised_host="kafka.example", advertised_port="443") == (
        Listener("PLAINTEXT", "0.0.0.0", 19092, "kafka.example", 443),
    )
    assert listeners(broker_addr=":9092", advertised_host="kafka") == (Listener("PLAINTEXT", "", 9092, "kafka", 9092),)
    assert listeners(broker_addr="127.0.0.1:0") == (Listener("PLAINTEXT", "127.0.0.1", 0, "127.0.0.1", 0),)
    assert listeners(broker_addr="[::1]:9092") == (Listener("PLAINTEXT", "::1", 9092, "::1", 9092),)


def test_named_listeners_with_their_advertised_addresses() -> None:
    found = listeners(
        listeners="INTERNAL://:9092, external://[::]:9093",
        advertised_listeners="EXTERNAL://kafka.example:443,INTERNAL://10.0.0.7:9092",
    )
    assert found == (
        Listener("INTERNAL", "", 9092, "10.0.0.7", 9092),
        Listener("EXTERNAL", "::", 9093, "kafka.example", 443),
    )


def test_advertised_addresses_may_contain_the_machines_hostname() -> None:
    own = socket.gethostname()
    assert listeners(listeners="IN://:1,OUT://:2", advertised_listeners="IN://{hostname}:1,OUT://localhost:2") == (
        Listener("IN", "", 1, own, 1),
        Listener("OUT", "", 2, "localhost", 2),
    )
    assert listeners(broker_addr=":9092", advertised_host="{hostname}") == (Listener("PLAINTEXT", "", 9092, own, 9092),)
    with pytest.raises(ConfigError, match="not a host name"):
        listeners(listeners="IN://{hostname}:1")


def test_named_listeners_advertise_their_own_addresses_by_default() -> None:
    assert listeners(listeners="A://localhost:0,B://[fe80::1%eth0]:0") == (
        Listener("A", "localhost", 0, "localhost", 0),
        Listener("B", "fe80::1%eth0", 0, "fe80::1%eth0", 0),
    )


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"listeners": "A://h:1", "broker_addr": "h:2"}, "KAFSCALE_LISTENERS and KAFSCALE_BROKER_ADDR"),
        ({"listeners": "A://h:1", "advertised_host": "h"}, "KAFSCALE_LISTENERS and KAFSCALE_ADVERTISED_HOST"),
        ({"listeners": "A://h:1", "advertised_port": "2"}, "KAFSCALE_LISTENERS and KAFSCALE_ADVERTISED_PORT"),
        ({"advertised_listeners": "A://h:1"}, "without KAFSCALE_LISTENERS"),
        ({"listeners": "A://h:1,a://h:2"}, "KAFSCALE_LISTENERS names A twice"),
        ({"listeners": "A://h:1,B://h:1"}, "same port 1"),
        ({"listeners": "A://h:1,B://:1", "advertised_listeners": "A://h:1,B://h:2"}, "same port 1"),
        ({"listeners": "A://h:1", "advertised_listeners": "B://h:1"}, "names B, which"),
        ({"listeners": "A://h:1,B://h:2", "advertised_listeners": "A://h:1"}, "no address for B"),
        ({"listeners": "A://h:1", "advertised_listeners": "A://h:0"}, "port 0"),
        ({"listeners": "A://:1"}, "set KAFSCALE_ADVERTISED_LISTENERS"),
        ({"listeners": "A://0.0.0.0:1"}, "set KAFSCALE_ADVERTISED_LISTENERS"),
        ({"broker_addr": "0.0.0.0:1"}, "set KAFSCALE_ADVERTISED_HOST"),
        ({"listeners": "h:1"}, "NAME://host:port"),
        ({"listeners": "A://h:1,"}, "NAME://host:port"),
        ({"listeners": "A B://h:1"}, "NAME://host:port"),
        ({"listeners": "A://h"}, "host:port"),
        ({"listeners": "A://h:65536"}, "0 to 65535"),
        ({"listeners": "A://h:-1"}, "0 to 65535"),
        ({"listeners": "A://::1:9092"}, "brackets"),
        ({"listeners": "A://[h]:9092"}, "brackets"),
        ({"listeners": "A://h/x:9092"}, "not a host name"),
        ({"broker_addr": "h"}, "KAFSCALE_BROKER_ADDR"),
        ({"advertised_port": "0"}, "KAFSCALE_ADVERTISED_PORT"),
        ({"advertised_host": "a b"}, "KAFSCALE_ADVERTISED_HOST"),
    ],
)
def test_wrong_listeners_stop_the_start(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listeners(**variables)
    assert message in str(caught.value)
