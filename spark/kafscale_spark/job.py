"""Common parts of the jobs: arguments, options of the connection, and error messages.

A job that fails ends with exit status 2.
"""

import argparse
import re
import sys
import traceback
from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import kafscale_spark
from kafscale.errors import ConfigError, KafscaleError
from kafscale_spark.connection import CONNECTION_OPTIONS, Connection, connection_of
from kafscale_spark.options import read_options
from kafscale_spark.subscription import java_pattern, topic_names

Work = Callable[[SparkSession, argparse.Namespace], int]

_FAILED = 2
_RAISED = re.compile(r"^kafscale\w*(?:\.\w+)+: (.*)$", re.MULTILINE)
"""The last line of a traceback that ends with one of our errors."""


def parser(name: str, doc: str | None, *, endpoints_required: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every job, which say how to reach the storage service."""
    made = argparse.ArgumentParser(
        prog=name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(
        "--endpoints", required=endpoints_required, help="storage instances as host:port, separated by commas"
    )
    made.add_argument(
        "--option",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="an option of the connection, such as kafscale.tls.ca=/etc/ca.pem; may be repeated",
    )
    return made


def add_topics(made: argparse.ArgumentParser) -> None:
    """Add the arguments of a job that reads topics."""
    topics = made.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", help="the topics to read, separated by commas")
    topics.add_argument("--pattern", help="read topics whose name contains a match, also those created later")
    made.add_argument("--starting", default="earliest", help="startingOffsets of the first run (default: %(default)s)")
    made.add_argument(
        "--max-bytes", default="256MB", help="the size of segments per micro-batch (default: %(default)s)"
    )


def add_stream(made: argparse.ArgumentParser) -> None:
    """Add the arguments of a streaming job."""
    made.add_argument("--checkpoint", required=True, help="a directory for the progress of this job only")
    made.add_argument(
        "--interval",
        metavar="TIME",
        help="run until stopped, with a micro-batch at this interval, such as '30 seconds'; by default the job ends "
        "when it has processed the records that existed when it began",
    )


def run(work: Work, args: argparse.Namespace, spark: SparkSession | None, name: str) -> int:
    """Run ``work`` and return its exit status, or 2 after printing the error if it fails."""
    session = spark or SparkSession.builder.appName(name).getOrCreate()
    kafscale_spark.register(session)
    # Days and hours are in UTC, wherever a job runs.
    zone = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        return work(session, args)
    except (KafscaleError, PySparkException) as error:
        print(f"{name}: {_message(error)}", file=sys.stderr)
        return _FAILED
    finally:
        session.conf.set("spark.sql.session.timeZone", zone or "UTC")


def _message(error: Exception) -> str:
    """Return the message of our error that a task raised, without tracebacks, or else the whole text of the error."""
    raised = _RAISED.search(str(error))
    return raised[1] if raised else str(error)


def connection(args: argparse.Namespace) -> dict[str, str]:
    """Return the connection options for the source and the sink."""
    return {**({"kafscale.endpoints": args.endpoints} if args.endpoints else {}), **dict(args.option)}


def storage(args: argparse.Namespace) -> Connection:
    """Return the connection for the job's own calls. Raises ConfigError."""
    return connection_of(read_options(CONNECTION_OPTIONS, connection(args)))


def reading(args: argparse.Namespace, *, writes: str | None = None) -> dict[str, str]:
    """Return the options for a stream of the topics, with headers. ``writes`` is the topic that the job writes to.

    Raises ConfigError if the job would read that topic too, because it would never end.
    """
    if writes is not None and _reads(args, writes):
        raise ConfigError(
            f"the job would read topic {writes}, which it writes to: "
            f"{'--topics names' if args.topics else '--pattern matches'} it"
        )
    subscribed = {"subscribe": args.topics} if args.topics else {"subscribePattern": args.pattern}
    return {
        **connection(args),
        **subscribed,
        "startingOffsets": args.starting,
        "maxBytesPerTrigger": args.max_bytes,
        "includeHeaders": "true",
    }


def _reads(args: argparse.Namespace, topic: str) -> bool:
    if args.topics:
        return topic in topic_names(args.topics)
    try:
        return re.search(java_pattern(args.pattern), topic) is not None
    except ValueError as error:
        raise ConfigError(f"--pattern: {error}") from error


def triggered(writer: DataStreamWriter, args: argparse.Namespace) -> DataStreamWriter:
    return writer.trigger(processingTime=args.interval) if args.interval else writer.trigger(availableNow=True)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main_of(main: Callable[[Sequence[str]], int]) -> None:
    """End the process with the job's status. Never use Python's default of 1, by which an audit reports damage."""
    try:
        status = main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - printed in full, and the process ends
        traceback.print_exc()
        status = _FAILED
    sys.exit(status)
