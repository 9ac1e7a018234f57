"""What the job rollup writes from ``foreachBatch``, as far as it needs no Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs import rollup
from kafscale.errors import ConfigError


def test_a_micro_batch_of_no_known_query_is_not_written() -> None:
    """As in a thread of Python that Spark gives another thread of its own: PYSPARK_PIN_THREAD=false."""
    context = SimpleNamespace(getLocalProperty=lambda _: None)
    results: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(ConfigError, match="PYSPARK_PIN_THREAD"):
        rollup._append({}, results, 0)
