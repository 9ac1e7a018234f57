"""Ports of 127.0.0.1 for servers under test, below those that the kernel gives to outgoing connections.

One of those may be taken by any client between its choice and the start of the server, or while that is restarted.
"""

import random
import socket

_PORTS = range(10_000, 32_000)
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on and that were not given before in this process."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of a server that has ended may still linger on its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
