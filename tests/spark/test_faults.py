"""The sink is exactly once under any kills: one seed, and thirty with `make test-long`."""

from collections.abc import Iterator

import pytest

from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.spark.faults import Faults, running_faults
from tests.spark.faults_check import line, shortened

SEEDS = range(1, 2)
LONG_SEEDS = range(2, 31)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, etcd: Etcd, minio: Minio) -> Iterator[Faults]:
    with running_faults(tmp_path_factory.mktemp("faults"), etcd=etcd, minio=minio) as made:
        yield made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG_SEEDS)])
def test_the_output_equals_the_input_under_any_kills(faults: Faults, seed: int) -> None:
    report = faults.run(seed, seconds=0.0, say=print)
    print(line(report))
    if report.complaints:
        pytest.fail("\n".join(shortened(report.complaints)), pytrace=False)
    assert report.verdict.records > 0
    assert report.seen > 0
    assert report.faults.keys() >= {"task", "committer", "storage", "gateway"}
    assert report.drivers > 1
