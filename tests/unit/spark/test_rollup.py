"""The writes of the job rollup from ``foreachBatch``, as far as they need no Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs import rollup
from kafscale.errors import ConfigError


def test_a_micro_batch_of_an_unknown_query_is_not_written() -> None:
    """As in a Python thread that is not pinned to a thread of the JVM: PYSPARK_PIN_THREAD=false."""
    context = SimpleNamespace(getLocalProperty=lambda _: None)
    results: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(ConfigError, match="PYSPARK_PIN_THREAD"):
        rollup._append({}, results, 0)
