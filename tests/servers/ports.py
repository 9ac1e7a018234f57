"""Ports of 127.0.0.1 for servers under test, below the range of ephemeral ports.

A client could take an ephemeral port before the server starts, or while it restarts.
"""

import random
import socket

_PORTS = range(10_000, 32_000)
_used: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that are free and that this process has not returned before."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in _used and _is_free(port):
            _used.add(port)
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of an earlier server may still linger on the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
