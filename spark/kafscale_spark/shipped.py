"""Makes a package from ``--py-files`` available to the processes that plan streams of Python sources.

Spark 4.0 to 4.3 lets them search an empty directory (``streaming_job``, below the one with the files), so they find the
package only through the environment of the session's Python functions.
"""

import os
from pathlib import Path
from zipimport import zipimporter

from pyspark.sql import SparkSession

import kafscale_spark

_PATH = "PYTHONPATH"


def extend_planner_path(spark: SparkSession) -> None:
    """Let planners, which run on the driver's machine, import from the zip that the driver imports from."""
    spec = kafscale_spark.__spec__
    # A session of Spark Connect has another class, because its driver is elsewhere.
    if spec is None or not isinstance(spec.loader, zipimporter) or not isinstance(spark, SparkSession):
        return
    environment = spark.sparkContext.environment
    archive = str(Path(spec.loader.archive).absolute())
    path = [entry for entry in environment.get(_PATH, "").split(os.pathsep) if entry]
    if archive not in path:
        environment[_PATH] = os.pathsep.join([archive, *path])
