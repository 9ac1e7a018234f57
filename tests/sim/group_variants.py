"""Former defects of coordinators and gateways that broke consumer groups. They are simulated with groups only."""

from collections.abc import Mapping

from tests.sim.variant import Variant
from tests.sim.world import GROUPS_TROUBLED_SECONDS
from tests.support.change import Change

_COMING_AND_GOING = {"coordinator-leave": 3.0, "coordinator-crash": 2.0}
_LOST_WRITES = {"metadata-lost-answer": 3.0, "metadata-late": 3.0}
_OWNED = "elif self._owners[index] == self.run_id:"
_NOT_RELEASED_WHEN_DROPPED = (
    Change(
        "services.coordinator.run",
        "Run._reconcile",
        _OWNED,
        f"{_OWNED[:-1]} and index not in getattr(self, 'left', ()):",
    ),
    Change(
        "services.coordinator.run",
        "Run._hand_over",
        "        self._drop(shard, self._not_served(index))\n        await self._release(index)\n",
        "        if self.shards.get(index) is shard:\n"
        "            self._drop(shard, self._not_served(index))\n"
        "            await self._release(index)\n"
        "        else:\n"
        "            self.left = {*getattr(self, 'left', ()), index}\n",
    ),
)
_WITHOUT_PROOF = ("coordinator-clock-jump", "coordinator-pause", "coordinator-unproven-giving-back")


def _variant(why: str, *changes: Change, boost: Mapping[str, float], first_seed: int = 0, rare: str = "") -> Variant:
    return Variant(
        why,
        changes,
        boost,
        troubled_seconds=GROUPS_TROUBLED_SECONDS,
        first_seed=first_seed,
        rare=rare,
        groups=True,
        logs=False,
    )


GROUP_VARIANTS: dict[str, Variant] = {
    "claim-left": _variant(
        "a coordinator keeps a shard that a lost answer claimed for it and that was assigned to another",
        Change("services.coordinator.run", "Run._reconcile", _OWNED, "elif False:"),
        boost=_COMING_AND_GOING | _LOST_WRITES,
        first_seed=16,
        rare="tests/unit/coordinator/test_shards_served.py::test_a_claim_with_a_lost_answer_does_not_orphan_a_shard",
    ),
    "write-fails-while-given-back": _variant(
        "a shard that is dropped during its release because a write fails is not released",
        *_NOT_RELEASED_WHEN_DROPPED,
        boost=_COMING_AND_GOING | _LOST_WRITES | dict.fromkeys(_WITHOUT_PROOF, 0.0),
        rare="tests/unit/coordinator/test_shards_served.py::"
        "test_a_write_of_unknown_outcome_during_a_release_does_not_orphan_a_shard",
    ),
    "unproven-while-given-back": _variant(
        "a shard that is dropped during its release because the lease cannot be proven is not released",
        *_NOT_RELEASED_WHEN_DROPPED,
        boost={"coordinator-leave": 2.0, "coordinator-unproven-giving-back": 20.0, "metadata-slow": 8.0}
        | dict.fromkeys(("metadata-error", "metadata-lost-answer", "metadata-late", "metadata-down"), 0.0)
        # The coordinator that keeps the shard must survive.
        | dict.fromkeys(("coordinator-crash", "coordinator-lease-lost", "crash-at-point"), 0.0)
        | dict.fromkeys(("coordinator-clock-jump", "coordinator-pause", "coordinator-cut-from-metadata"), 0.0),
        first_seed=10,
    ),
    "woken-twice": _variant(
        "an answer wakes a task that was already woken by its cancellation",
        Change(
            "services.coordinator.tickets",
            "Tickets.wait",
            "                    self.close(ticket)\n                    return",
            "                    return",
        ),
        boost={"gateway-crash": 8.0, "connection-lost": 6.0, "coordinator-crash": 4.0},
        first_seed=14,
    ),
    "released-while-dropped": _variant(
        "a shard that is dropped during its release is removed a second time",
        Change(
            "services.coordinator.run",
            "Run._hand_over",
            "        self._drop(shard, self._not_served(index))\n        await self._release(index)\n",
            "        shard.close(self._not_served(index))\n"
            "        if self.shards.get(index) is shard:\n"
            "            await self._release(index)\n"
            "            del self.shards[index]\n",
        ),
        boost=_COMING_AND_GOING | {"coordinator-clock-jump": 6.0, "coordinator-pause": 2.0, "metadata-slow": 3.0},
    ),
    "paused-gateway": _variant(
        "a gateway executes requests from before its pause although their clients have given up",
        Change("services.gateway.pauses", "Pauses.look", "if passed <= self._limit:", "if True:"),
        boost={"gateway-long-pause": 6.0, "connection-end-unseen": 3.0},
        first_seed=3,
    ),
    "former-topic-committed": _variant(
        "a gateway with a stale view commits an offset of a deleted topic to its successor",
        Change(
            "services.coordinator.service",
            "CoordinatorService.offset_commit",
            "gone = await self._topics.gone(request, lambda: self._replaced(request))",
            "pass",
        ),
        boost={"topic-remade-unseen": 10.0, "connection-lost": 8.0}
        | dict.fromkeys(("gateway-crash", "gateway-pause"), 0.0),
        first_seed=12,
    ),
    "offsets-by-the-wall-clock": _variant(
        "a coordinator expires offsets with its own wall clock",
        Change(
            "services.coordinator.group_clock",
            "GroupClock.now_ms",
            "return self._base_ms + int((self._clock() - self._since) * 1000)",
            "return self._wall_ms()",
        ),
        boost={"coordinator-wall-clock-jump": 4.0},
        first_seed=6,
    ),
}
