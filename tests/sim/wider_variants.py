"""Broken products that only one kind of fault, or one kind of client, gives away."""

from tests.sim.variant import Change, Variant

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}

WIDER_VARIANTS: dict[str, Variant] = {
    "stopped-by-a-foreign-key": Variant(
        "a listing ends at a key that is no segment's",
        (
            Change(
                "services.storage.finder",
                "SegmentFinder._list",
                "if key is None:\n                    continue",
                "if key is None:\n                    break",
            ),
        ),
        _CRASHES | {"foreign-object": 12.0},
        first_seed=5,
    ),
    "epoch-ends-with-the-log": Variant(
        "every leader epoch is told to end where the log does",
        (
            Change(
                "services.storage.partition",
                "CommittedLog.end_of_epoch",
                "if i < len(self.epochs) and not unknown",
                "if False",
            ),
        ),
        _CRASHES,
    ),
}
