"""The output of the rollup job in ``foreachBatch``, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs import rollup
from kafscale.errors import ConfigError


def test_a_micro_batch_of_an_unknown_query_is_not_written() -> None:
    """Its thread has no query if Spark gives threads of Python other threads: PYSPARK_PIN_THREAD=false."""
    context = SimpleNamespace(getLocalProperty=lambda _: None)
    results: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(ConfigError, match="PYSPARK_PIN_THREAD"):
        rollup._append({}, results, 0)
