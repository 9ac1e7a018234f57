"""KafScale's topics for Spark: `import kafscale_spark` registers the source `kafscale` with the active session.

If the package is imported before a session exists, it registers nothing. Spark then discovers an installed package
through `pyspark_kafscale`; otherwise call `register`.
"""

import sys
from typing import TYPE_CHECKING

from kafscale_spark.zips import keep_directories_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register `format("kafscale")` with a session, and enable filter pushdown if Spark supports it (4.1 and later)."""
    # Imported here because the decoder must not depend on pyspark.
    from kafscale_spark.compat import PUSHDOWN_CONFIG, PUSHED_FILTERS, register_source  # noqa: PLC0415
    from kafscale_spark.shipped import extend_planner_path  # noqa: PLC0415
    from kafscale_spark.slots import pass_slots_to_planners  # noqa: PLC0415
    from kafscale_spark.source import KafscaleDataSource  # noqa: PLC0415

    extend_planner_path(spark)
    pass_slots_to_planners(spark)
    register_source(spark, KafscaleDataSource)
    if PUSHED_FILTERS:
        spark.conf.set(PUSHDOWN_CONFIG, "true")


def _register_with_active_session() -> None:
    sql = sys.modules.get("pyspark.sql")
    session = None if sql is None else sql.SparkSession.getActiveSession()
    if session is not None:
        register(session)


_register_with_active_session()
keep_directories_in_workers()
