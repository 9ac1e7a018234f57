"""KafScale's topics for Spark: `import kafscale_spark` registers the source `kafscale` with the active session.

Imported before there is a session, it registers nothing: where the package is installed Spark finds it by itself, by
`pyspark_kafscale`, and elsewhere `register` is for that.
"""

import sys
from typing import TYPE_CHECKING

from kafscale_spark.zips import keep_directories_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("kafscale")` known to a session, and let Spark hand it filters where Spark can (4.1 and later)."""
    # What the decoder alone needs has no pyspark.
    from kafscale_spark.compat import PUSHDOWN_CONFIG, PUSHED_FILTERS, register_source  # noqa: PLC0415
    from kafscale_spark.shipped import show_to_planners  # noqa: PLC0415
    from kafscale_spark.slots import tell_planners  # noqa: PLC0415
    from kafscale_spark.source import KafscaleDataSource  # noqa: PLC0415

    show_to_planners(spark)
    tell_planners(spark)
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
