"""The bytes of a persisted group. Later releases must be able to read them."""

from kafscale.paths import GroupKeys
from services.coordinator.groups import Groups
from services.coordinator.table import State
from tests.support.coordinator.harness import LIMITS, WALL, World, topic_id

_PREFIX = "kafscale/ns/groups/54/g/"
_MEMBER = "08011201691a02633022092f31302e302e302e3128904e30b0ea013a160a0572616e6765120d00000000000100017400000000"
_STORED = {
    "assignments/1-1/0": "080112040a027030",
    "header": (
        "080110011a08636f6e73756d6572220572616e67652a03692d31320a0a03692d311203312d313a03312d31400148b8e795ffbc31"
    ),
    "members/i-1/1-1": _MEMBER,
    "offsets/t/3": "08011005180322046e6f746528b8e795ffbc3130a0ef95ffbc313a10" + b"t---------------".hex(),
}


def test_a_group_is_encoded_as_these_bytes() -> None:
    world = World()
    [member] = world.stable(1, instance_id="i")
    world.commit({("t", 3): 5}, member, 1, metadata="note", retention_ms=1000)
    assert {key.removeprefix(_PREFIX): value.hex() for key, value in world.store.items()} == _STORED


def test_these_bytes_are_decoded_as_the_group() -> None:
    groups = Groups("ns", LIMITS, 9)
    items = [(_PREFIX + key, bytes.fromhex(value)) for key, value in _STORED.items()]
    effects = groups.load("g", items, 9, World().now)
    group = groups["g"]
    assert group.keys == GroupKeys("ns", "g")
    assert (group.state, group.generation, group.protocol, group.leader) == (State.STABLE, 1, "range", "i-1")
    assert (group.static, group.topics) == ({"i": "i-1"}, frozenset(["t"]))
    member, offset = group.members["i-1"], group.offsets["t", 3]
    assert (member.assignment, member.session_timeout_ms, member.client_host) == (b"p0", 10_000, "/10.0.0.1")
    assert (offset.offset, offset.leader_epoch, offset.metadata, offset.topic_id) == (5, 3, "note", topic_id("t"))
    assert (offset.committed_ms, offset.expires_ms) == (WALL + 3000, WALL + 4000)
    assert not effects.writes
    assert not effects.sweep
