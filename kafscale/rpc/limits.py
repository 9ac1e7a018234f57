"""What bounds a gRPC connection, and the channel arguments that say so to gRPC."""

from dataclasses import dataclass

MIB = 1 << 20
LARGEST_PAYLOAD = 64 * MIB
"""Of one message; KAFSCALE_RPC_MAX_MESSAGE_BYTES leaves room for what stands around it."""
_HEALTH_AND_REFLECTION_CALLS = 100

Options = list[tuple[str, int | str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcLimits:
    """Bytes and seconds.

    ``max_message_bytes``: of one request, reply or streamed message, both ways. ``max_calls``: that a server has in
    hand at a time, streams included; more are refused. ``max_waiting_calls``: the same for calls that wait for other
    callers, which are counted by themselves: they keep nobody out. ``stream_messages``: that a server keeps of a
    stream whose reader is slow, ``large_messages`` where they are large. ``keepalive_seconds``: a connection on which
    nothing came for so long is asked for a sign of life, and given up with its calls ``keepalive_timeout_seconds``
    later; ``keepalive_without_calls``: also while no call is under way, which foreign servers may take amiss.
    ``connect_seconds``: for one attempt to connect. ``longest_backoff_seconds``: between two attempts, from 0.1 s on,
    spread by 20 %. ``drain_seconds``: how long a stopping server lets the calls in hand finish.
    """

    max_message_bytes: int = 72 * MIB
    max_calls: int = 16_384
    max_waiting_calls: int = 65_536
    stream_messages: int = 16
    large_messages: int = 4
    keepalive_seconds: float = 10.0
    keepalive_timeout_seconds: float = 5.0
    keepalive_without_calls: bool = True
    connect_seconds: float = 5.0
    longest_backoff_seconds: float = 2.0
    drain_seconds: float = 10.0

    def most_calls(self, *, waiting: bool) -> int:
        return self.max_waiting_calls if waiting else self.max_calls

    def most_kept(self, *, large: bool) -> int:
        """Messages of a stream that wait for its reader."""
        return self.large_messages if large else self.stream_messages

    @property
    def most_grpc_calls(self) -> int:
        """Beyond this gRPC refuses by itself: health and reflection are answered when a server has all it takes."""
        return self.max_calls + self.max_waiting_calls + _HEALTH_AND_REFLECTION_CALLS

    def client_options(self) -> Options:
        """For a channel."""
        return [
            *self._both(),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", _ms(self.connect_seconds)),
            ("grpc.max_reconnect_backoff_ms", _ms(self.longest_backoff_seconds)),
            # A call of unknown outcome is repeated by whoever knows what that means, or not at all.
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            # Traffic between services never goes through the proxy that the environment names for the web.
            ("grpc.enable_http_proxy", 0),
            # A channel's backoff is its own, not that of another channel to the same address.
            ("grpc.use_local_subchannel_pool", 1),
        ]

    def server_options(self) -> Options:
        """For a server."""
        return [
            *self._both(),
            # A second process on the port must fail to start, not take every other connection.
            ("grpc.so_reuseport", 0),
            # Clients choose how often they ask; by default gRPC takes one ping in 5 minutes, and hangs up on more.
            ("grpc.http2.max_ping_strikes", 0),
        ]

    def _both(self) -> Options:
        return [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", _ms(self.keepalive_seconds)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout_seconds)),
            # What grpcio 1.85 really waits for: without it, an unanswered ping ends nothing for a minute.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout_seconds)),
            ("grpc.keepalive_permit_without_calls", int(self.keepalive_without_calls)),
            ("grpc.http2.max_pings_without_data", 0),
        ]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
