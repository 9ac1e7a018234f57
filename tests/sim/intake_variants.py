"""Deliberately broken products with intakes, which the simulation must detect."""

from dataclasses import replace

from tests.sim.variant import Variant
from tests.support.change import Change

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}
_PAUSES = {"pause": 6.0, "pause-before-put": 20.0, "pause-after-put": 10.0, "ping-pong": 3.0}
_MOVES = {"leave": 4.0, "come-and-go": 4.0, "ping-pong": 6.0}

_VARIANTS: dict[str, Variant] = {
    "intake-not-recovered": Variant(
        "a new owner does not read the intake of a dead one",
        (
            Change(
                "services.storage.owning.takeover",
                "_tail",
                "own = await intakes.of_dead_owner(state.owner, key, epoch=epoch, start=end)",
                "own = Tail([], end, [])",
            ),
        ),
        _CRASHES,
        first_seed=2,
    ),
    "intake-read-without-seal": Variant(
        "a new owner reads the intake of a dead one without sealing it",
        (
            Change(
                "services.storage.intake.recovery", "IntakeRecovery._sealed", "await chain.seal()", "await chain.span()"
            ),
        ),
        _CRASHES | _PAUSES | {"cut-from-metadata": 6.0, "gateway-cut-from-metadata": 6.0},
        rare="tests/unit/storage/test_intake.py::test_a_new_owner_recovers_what_a_dead_one_acknowledged",
    ),
    "intake-released-without-tail": Variant(
        "a partition that is released without storing its buffer does not name the intake that has the records",
        (
            Change(
                "services.storage.owning.handover",
                "HandOver.release",
                "if end > max(free.high_watermark, partition.recovered_end):",
                "if False:",
            ),
        ),
        _MOVES,
        rare="tests/unit/storage/test_intake.py::test_a_partition_released_in_a_hurry_leaves_its_tail",
    ),
    "intake-released-under-way": Variant(
        "a partition is released while an intake object with its records is on its way",
        (Change("services.storage.owning.handover", "HandOver.settle", "while partition.in_chain:", "while False:"),),
        _MOVES | {"object-slow": 5.0},
        # Its effects show only when the bucket alone is left.
        rare="tests/unit/storage/test_intake.py::"
        "test_a_partition_is_not_released_while_an_object_with_its_records_is_on_its_way",
    ),
    "intake-counts-out-of-order": Variant(
        "an intake object counts as soon as it is stored, although an earlier one is not",
        (
            Change(
                "services.storage.intake.writer",
                "IntakeWriter._stored",
                "while self._under_way and self._under_way[0].stored:\n"
                "            appends += self._under_way[0].appends\n"
                "            self._count(self._under_way.popleft(), counted)",
                "self._under_way.remove(one)\n        self._count(one, counted)",
            ),
        ),
        _CRASHES | {"object-slow": 5.0},
        rare="tests/unit/storage/test_intake.py::test_an_object_counts_only_when_all_before_it_are_stored",
    ),
    "intake-checkpoint-too-high": Variant(
        "the checkpoint passes records that are not in segments",
        (
            Change(
                "services.storage.intake.writer",
                "IntakeWriter._checkpoint",
                "first.needed = [each for each in first.needed if _is_needed(*each)]",
                "first.needed = []",
            ),
        ),
        _CRASHES,
        rare="tests/unit/storage/test_intake.py::test_a_new_owner_recovers_what_a_dead_one_acknowledged",
    ),
    "intake-appends-before-recovery": Variant(
        "a new owner accepts appends before the recovered records are in segments",
        (
            Change(
                "services.storage.log.partition",
                "Partition.is_recovering",
                "return self.log.segments_end < self.recovered_end",
                "return False",
            ),
        ),
        _CRASHES,
        rare="tests/unit/storage/test_intake.py::test_nothing_is_appended_before_the_recovered_records_are_in_segments",
    ),
    "intake-leader-offset-lost": Variant(
        "the epoch of a new owner is said to begin where segments end, not behind the recovered records",
        (
            Change(
                "services.storage.log.partition",
                "CommittedLog.end_of_epoch",
                "end = self.leader_offsets.get(following, first_offset)",
                "end = first_offset",
            ),
        ),
        _CRASHES,
        rare="tests/unit/storage/test_intake.py::test_a_new_owner_recovers_what_a_dead_one_acknowledged",
    ),
    "intake-sequences-forgotten": Variant(
        "a new owner does not learn the sequences of idempotent producers from the intake",
        (
            Change(
                "services.storage.owning.owned",
                "OwnedPartitions._restore_producers",
                "partition.producers.add(batch, restored.arrival_ms)",
                "pass",
            ),
        ),
        _CRASHES,
        rare="tests/unit/recovery/test_restore_intakes.py::test_idempotent_producers_go_on_after_a_restore",
    ),
    "intake-seal-overwritten": Variant(
        "a run that meets a seal takes it for its own object",
        (
            Change(
                "services.storage.intake.writer",
                "IntakeWriter._put",
                "if there is not None:",
                "if False:",
            ),
        ),
        _PAUSES,
        rare="tests/unit/storage/test_intake.py::test_a_run_that_meets_a_seal_ends",
    ),
    "intake-register-not-compared": Variant(
        "a run whose register is sealed takes over partitions",
        (
            Change(
                "services.storage.owning.takeover",
                "_fence",
                "            Unchanged(register.key, register.revision),\n",
                "",
            ),
        ),
        _PAUSES | _MOVES,
        rare="tests/unit/storage/test_intake_runs.py::test_a_run_whose_register_is_sealed_takes_over_nothing",
    ),
    "intake-removed-too-early": Variant(
        "the intake of an ended run is removed although a state names the run",
        (
            Change(
                "services.storage.upkeep.intakes",
                "IntakeCollector._collect",
                "sealed -= {state.owner, state.tail.run_id}",
                "pass",
            ),
        ),
        _CRASHES,
        rare="tests/unit/storage/test_intake_runs.py::test_the_intake_of_an_ended_run_is_removed_when_no_partition_needs_it",
    ),
}

INTAKE_VARIANTS = {name: replace(variant, intake=True) for name, variant in _VARIANTS.items()}
