"""A minimal Kafka client for reading and writing records, with one connection per broker and one request at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import Unavailable
from kafscale.kafka_client.connection import Address, Connection, Security, connect
from kafscale.kafka_client.requests import METADATA, NOT_ALLOWED, Refusal, decoded, encoded


class Brokers:
    """The brokers of a cluster, found through ``bootstrap``. An async context manager, which closes the connections.

    Each broker gets one request at a time. ``seconds`` is the time limit for one answer. ``check`` is called before a
    connection, also to an address that the cluster has reported, and raises Unavailable if there must be none.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: Security,
        *,
        seconds: float,
        check: Callable[[Address], None] = lambda _: None,
    ) -> None:
        self.seconds = seconds
        self._security = security
        self._check = check
        self._bootstrap = list(bootstrap)
        self._known: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}

    async def __aenter__(self) -> "Brokers":
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            for connection in self._connections.values():
                await connection.aclose()

    async def leaders(self, topic: str) -> dict[int, int]:
        """Return the leaders' broker ids by partition, -1 if there is none. Raises Refusal, Unavailable."""
        request = {
            "topics": ({"name": topic},),
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        reply = await self.ask_any(METADATA, request)
        self._known = {int(each.node_id): (each.host, int(each.port)) for each in reply.brokers}
        (found,) = reply.topics
        if found.error_code is ErrorCode.unknown_topic_or_partition:
            raise Refusal(found.error_code, f"The topic {topic} does not exist.")
        if found.error_code in NOT_ALLOWED:
            raise Refusal(found.error_code, f"No ACL allows access to the topic {topic}.")
        if found.error_code is not ErrorCode.none:
            refusal = Refusal(found.error_code)
            raise Unavailable(str(refusal)) if refusal.retriable else refusal
        return {int(each.partition_index): int(each.leader_id) for each in found.partitions}

    async def ask(self, node_id: int, api_key: int, values: dict[str, Any]) -> Any:
        """Send a request and return the reply as a kio entity. ``values`` are the request's fields by kio's names.

        Raises Unavailable if the outcome is unknown.
        """
        if node_id not in self._known:
            raise Unavailable(f"broker {node_id} is not available")
        return await self._ask(self._known[node_id], api_key, values)

    async def ask_any(self, api_key: int, values: dict[str, Any]) -> Any:
        """Send a request that is safe to repeat to one broker after another until one answers."""
        failures = []
        for address in dict.fromkeys([*self._known.values(), *self._bootstrap]):
            try:
                return await self._ask(address, api_key, values)
            except Unavailable as error:
                failures.append(f"{address[0]}:{address[1]}: {error}")
        raise Unavailable("no broker answers: " + "; ".join(failures))

    async def _ask(self, address: Address, api_key: int, values: dict[str, Any]) -> Any:
        body = encoded(api_key, values)
        with trio.move_on_after(self.seconds):
            # Removed during the request, so that a failed connection is not used again.
            connection = self._connections.pop(address, None)
            if connection is None or connection.expired:
                connection = await self._replaced(address, connection)
            try:
                reply = await connection.ask(api_key, body)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await connection.aclose()
                raise
            self._connections[address] = connection
            return decoded(api_key, reply)
        raise Unavailable(f"no answer within {self.seconds:g} s")

    async def _replaced(self, address: Address, former: Connection | None) -> Connection:
        """Connect to a broker. Raises Unavailable, and Refusal if the broker does not accept the user."""
        if former is not None:
            await former.aclose()
        self._check(address)
        return await connect(address, self._security)
