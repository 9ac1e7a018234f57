"""The limits of gRPC connections, and the channel arguments that configure them."""

from dataclasses import dataclass

from kafscale.security.tokens import LARGEST_TOKEN

KIB, MIB = 1 << 10, 1 << 20
LARGEST_PAYLOAD = 64 * MIB
"""The maximum payload of one message. KAFSCALE_RPC_MAX_MESSAGE_BYTES is larger, to allow for other fields."""
_HEALTH_AND_REFLECTION_CALLS = 100
_METADATA_BYTES = LARGEST_TOKEN + 8 * KIB
"""The size of the metadata of a call: a bearer token, and gRPC's default limit for the rest."""

Options = list[tuple[str, int | str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcLimits:
    """The limits of a client or server, in bytes and seconds.

    ``max_message_bytes``: the maximum size of a request, reply or streamed message. ``max_calls``: the maximum number
    of calls that a server runs at the same time, including streams; further calls are refused. ``max_waiting_calls``:
    the same for calls that wait for other callers, which are counted separately so that they do not block others.
    ``max_connections``: the maximum number of connections of a server; further ones are closed.
    ``stream_messages``: the number of messages that a server buffers for the slow reader of a stream;
    ``large_messages``: the same if they are large. ``keepalive_seconds``: a connection on which nothing is received for
    this long is pinged, and closed with its calls if there is no response within ``keepalive_timeout_seconds``.
    ``keepalive_without_calls``: ping idle connections too, which other servers may reject. ``connect_seconds``: the
    timeout of one attempt to connect. ``longest_backoff_seconds``: the maximum pause between two attempts; the first is
    0.1 s, and each is randomized by 20 %. ``drain_seconds``: how long a stopping server waits for its calls to finish.
    """

    max_message_bytes: int = 72 * MIB
    max_calls: int = 16_384
    max_waiting_calls: int = 65_536
    max_connections: int = 8_192
    stream_messages: int = 16
    large_messages: int = 4
    keepalive_seconds: float = 10.0
    keepalive_timeout_seconds: float = 5.0
    keepalive_without_calls: bool = True
    connect_seconds: float = 5.0
    longest_backoff_seconds: float = 2.0
    drain_seconds: float = 10.0

    def call_limit(self, *, waiting: bool) -> int:
        return self.max_waiting_calls if waiting else self.max_calls

    def stream_limit(self, *, large: bool) -> int:
        """The number of messages of a stream that are buffered for its reader."""
        return self.large_messages if large else self.stream_messages

    @property
    def grpc_call_limit(self) -> int:
        """The limit that gRPC enforces. It leaves room for health checks and reflection on a server at its limits."""
        return self.max_calls + self.max_waiting_calls + _HEALTH_AND_REFLECTION_CALLS

    def client_options(self) -> Options:
        """Return the channel arguments of a client."""
        return [
            *self._both(),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", _ms(self.connect_seconds)),
            ("grpc.max_reconnect_backoff_ms", _ms(self.longest_backoff_seconds)),
            # Only callers can decide whether a call with unknown outcome may be retried.
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            # Traffic between services must not use the HTTP proxy of the environment.
            ("grpc.enable_http_proxy", 0),
            # Channels to the same address must not share their backoff.
            ("grpc.use_local_subchannel_pool", 1),
        ]

    def server_options(self) -> Options:
        """Return the channel arguments of a server."""
        return [
            *self._both(),
            # A second process on the same port must fail to start instead of receiving some of the connections.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            # Clients choose their keepalive interval. By default, a server closes connections with more than one ping
            # in 5 minutes.
            ("grpc.http2.max_ping_strikes", 0),
            # Above the first limit, gRPC refuses some of the calls, and above the second one all.
            ("grpc.max_metadata_size", _METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ]

    def _both(self) -> Options:
        return [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", _ms(self.keepalive_seconds)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout_seconds)),
            # grpcio 1.85 uses this one: without it, an unanswered ping closes the connection only after a minute.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout_seconds)),
            ("grpc.keepalive_permit_without_calls", int(self.keepalive_without_calls)),
            ("grpc.http2.max_pings_without_data", 0),
        ]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
