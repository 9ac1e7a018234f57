"""Acknowledging received bytes to the sender's kernel at once.

With Nagle's algorithm, a client holds the end of a request back until all before it is acknowledged. By itself, the
kernel waits up to 40 ms for a response that it can send with the acknowledgement.
"""

import socket

import trio

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux has it, and forgets it


def acknowledge(connection: trio.socket.SocketType) -> None:
    """Acknowledge what has been received. To be called after each receive. Does nothing on other systems than Linux."""
    if _QUICKACK is None:
        return
    try:
        connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
    except OSError:
        # The next receive or send reports that the connection is broken.
        return
