"""One etcd and one MinIO for all tests of the four processes. Each cluster has its own bucket and namespace."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio

MakeCluster = Callable[..., AbstractContextManager[Cluster]]


@pytest.fixture
def make_cluster(etcd: Etcd, minio: Minio, tmp_path: Path) -> MakeCluster:
    """Return a factory of clusters (`running_cluster`) on the shared etcd and MinIO."""

    def make(**how: Any) -> AbstractContextManager[Cluster]:
        return running_cluster(tmp_path, etcd=etcd, minio=minio, **how)

    return make
