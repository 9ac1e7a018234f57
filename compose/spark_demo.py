"""Write sensor readings to the topic spark-demo with Spark, read them back, and print the average of each sensor."""

import os
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

_READINGS = 100_000
_TLS = {
    "kafscale.tls.ca": "KAFSCALE_RPC_TLS_CA_FILE",
    "kafscale.tls.cert": "KAFSCALE_RPC_TLS_CERT_FILE",
    "kafscale.tls.key": "KAFSCALE_RPC_TLS_KEY_FILE",
    "kafscale.tls.serverName": "KAFSCALE_RPC_TLS_SERVER_NAME",
}
"""The options whose values are in the environment with compose.secure.yaml, with the names of the variables."""

storage = {
    "kafscale.endpoints": "storage:9095",
    **{option: os.environ[name] for option, name in _TLS.items() if name in os.environ},
}

spark = (
    SparkSession.builder.appName("kafscale-demo")
    .config("spark.log.level", "WARN")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
# All readings of a run have the same timestamp, which distinguishes them from earlier runs.
now = f.lit(datetime.now(UTC).replace(microsecond=0))
readings = spark.range(_READINGS, numPartitions=2).select(
    f.concat(f.lit("sensor-"), f.col("id") % 5).alias("key"),
    (f.col("id") % 40).cast("string").alias("value"),
    now.alias("timestamp"),
)
readings.write.format("kafscale").mode("append").options(**storage, topic="spark-demo").save()
topic = spark.read.format("kafscale").options(**storage, subscribe="spark-demo").load()
sensors = (
    topic.where(f.col("timestamp") == now)
    .groupBy(f.col("key").cast("string").alias("sensor"))
    .agg(f.count("*").alias("readings"), f.avg(f.col("value").cast("string").cast("int")).alias("celsius"))
    .orderBy("sensor")
    .collect()
)
spark.stop()
for row in sensors:
    print(f"{row.sensor}: {row.readings} readings, {row.celsius:.1f} degrees on average")
found = sum(row.readings for row in sensors)
print(f"{_READINGS} records written to the topic spark-demo, {found} read back", flush=True)
raise SystemExit(found != _READINGS)
