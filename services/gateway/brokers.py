"""The live gateways as Kafka brokers, and which of them leads each partition.

Every gateway serves every partition and consumer group, so leadership only determines where clients connect. It is
assigned by rendezvous hashing of node ids: when a gateway joins or leaves, only its own share moves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

from kafscale.config.listeners import Listener
from kafscale.metadata.members import PLACES_REMEMBERED, Members, MembersView, place_of, weight


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerList:
    """The brokers that are reported to clients of one listener, ordered by id. There is at least one."""

    brokers: tuple[Broker, ...]
    _leader: Callable[[tuple[bytes, int]], int] = field(init=False, repr=False)
    _coordinator: Callable[[str], Broker] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_leader", lru_cache(PLACES_REMEMBERED)(partial(_leader_of, self.brokers)))
        object.__setattr__(self, "_coordinator", lru_cache(PLACES_REMEMBERED)(partial(_coordinator_of, self.brokers)))

    @property
    def controller(self) -> int:
        return self.brokers[0].node_id

    def leader(self, topic_id: bytes, partition: int) -> int:
        """The node id of the broker to which clients are sent for a partition."""
        if len(self.brokers) == 1:
            return self.brokers[0].node_id
        return self._leader((topic_id, partition))

    def coordinator(self, group: str) -> Broker:
        """The broker to which clients are sent for a consumer group."""
        return self._coordinator(group)


def _leader_of(brokers: tuple[Broker, ...], key: tuple[bytes, int]) -> int:
    return _heaviest(brokers, place_of(*key)).node_id


def _coordinator_of(brokers: tuple[Broker, ...], group: str) -> Broker:
    return _heaviest(brokers, group.encode())


def _heaviest(brokers: tuple[Broker, ...], place: bytes) -> Broker:
    return max(brokers, key=lambda broker: weight(str(broker.node_id), place))


class Brokers:
    """``own_id`` returns this gateway's current id. Its own clients see it even if it is not registered."""

    def __init__(self, gateways: Members, own_id: Callable[[], int]) -> None:
        self._gateways = gateways
        self._own_id = own_id
        self._view: MembersView | None = None
        self._lists: dict[tuple[str, str, int, int], BrokerList] = {}

    @property
    def own_id(self) -> int:
        """This gateway's node id."""
        return self._own_id()

    def at(self, listener: Listener) -> BrokerList:
        """The brokers for clients of ``listener``: the gateways with a listener of that name, at its addresses."""
        own = Broker(self._own_id(), listener.advertised_host, listener.advertised_port)
        if self._gateways.view is not self._view:
            self._view = self._gateways.view
            self._lists.clear()
        key = (listener.name, own.host, own.port, own.node_id)
        if key not in self._lists:
            self._lists[key] = BrokerList(self._listed(listener.name, own, self._view))
        return self._lists[key]

    @staticmethod
    def _listed(name: str, own: Broker, view: MembersView) -> tuple[Broker, ...]:
        # In order of registration, because the older of two gateways with the same id is a dead process.
        by_id: dict[int, Broker] = {}
        for live in sorted(view, key=lambda live: live.since):
            member = live.member
            found = next((each for each in member.listeners if each.name == name), None)
            by_id.pop(member.node_id, None)
            if found is not None and not member.leaving:
                by_id[member.node_id] = Broker(member.node_id, found.host, found.port)
        by_id[own.node_id] = own
        return tuple(by_id[node_id] for node_id in sorted(by_id))
