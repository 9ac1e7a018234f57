"""What Spark leaves out of ``--py-files``: the processes that plan streams of Python sources.

They are told to look where no files are (``streaming_job``, below where they are for all others; 4.0 to 4.3), so that
they find the package only where the environment of the session's Python functions leads.
"""

import os
from pathlib import Path
from zipimport import zipimporter

from pyspark.sql import SparkSession

import kafscale_spark

_PATH = "PYTHONPATH"


def show_to_planners(spark: SparkSession) -> None:
    """Let planners, which run where the driver does, import from the zip that the driver imports from."""
    spec = kafscale_spark.__spec__
    # A session of Spark Connect is none of this class: its driver is elsewhere.
    if spec is None or not isinstance(spec.loader, zipimporter) or not isinstance(spark, SparkSession):
        return
    environment = spark.sparkContext.environment
    archive = str(Path(spec.loader.archive).absolute())
    path = [entry for entry in environment.get(_PATH, "").split(os.pathsep) if entry]
    if archive not in path:
        environment[_PATH] = os.pathsep.join([archive, *path])
