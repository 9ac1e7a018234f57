"""What all jobs have in common: how they are told where KafScale is, and what they say of what is wrong.

They end with status 2 where they could not do what was asked for.
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

_NOT_DONE = 2
_RAISED = re.compile(r"^kafscale\w*(?:\.\w+)+: (.*)$", re.MULTILINE)
"""The last line of a traceback that ends with an error of ours."""


def parser(name: str, doc: str | None, *, endpoints_required: bool = True) -> argparse.ArgumentParser:
    """With the arguments of every job: how to reach the storage service."""
    made = argparse.ArgumentParser(
        prog=name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(
        "--endpoints", required=endpoints_required, help="storage instances, host:port with commas between"
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
    """For a job that reads topics."""
    topics = made.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", help="names with commas between")
    topics.add_argument("--pattern", help="a regular expression that is found in names; topics made later count too")
    made.add_argument("--starting", default="earliest", help="startingOffsets of the first run (default: %(default)s)")
    made.add_argument("--max-bytes", default="256MB", help="of segments in a micro-batch (default: %(default)s)")


def add_stream(made: argparse.ArgumentParser) -> None:
    """For a job that is a stream."""
    made.add_argument("--checkpoint", required=True, help="a directory of this job alone: how far it is")
    made.add_argument(
        "--interval",
        metavar="TIME",
        help="go on for ever, with a micro-batch every so often, such as '30 seconds'; by default the job ends when it "
        "has done what was there when it began",
    )


def run(work: Work, asked: argparse.Namespace, spark: SparkSession | None, name: str) -> int:
    """The job's exit status; 2 where it was not possible, with one line that says why."""
    session = spark or SparkSession.builder.appName(name).getOrCreate()
    kafscale_spark.register(session)
    # Days and hours are those of UTC, wherever a job runs.
    zone = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        return work(session, asked)
    except (KafscaleError, PySparkException) as error:
        print(f"{name}: {_in_words(error)}", file=sys.stderr)
        return _NOT_DONE
    finally:
        session.conf.set("spark.sql.session.timeZone", zone or "UTC")


def _in_words(error: Exception) -> str:
    """What a task of ours raised, without the tracebacks around it; else what the error says."""
    raised = _RAISED.search(str(error))
    return raised[1] if raised else str(error)


def connection(asked: argparse.Namespace) -> dict[str, str]:
    """The source's and the sink's options for it."""
    return {**({"kafscale.endpoints": asked.endpoints} if asked.endpoints else {}), **dict(asked.option)}


def storage(asked: argparse.Namespace) -> Connection:
    """For calls of the job's own. Raises ConfigError."""
    return connection_of(read_options(CONNECTION_OPTIONS, connection(asked)))


def reading(asked: argparse.Namespace, *, writes: str | None = None) -> dict[str, str]:
    """Options for a stream of the topics, with headers. ``writes``: the topic that the job itself writes to.

    Raises ConfigError where it would read that one too, and so never come to an end.
    """
    if writes is not None and _reads(asked, writes):
        raise ConfigError(
            f"topic {writes} is written to and would be read as well: "
            f"{'--topics names' if asked.topics else '--pattern finds'} it"
        )
    subscribed = {"subscribe": asked.topics} if asked.topics else {"subscribePattern": asked.pattern}
    return {
        **connection(asked),
        **subscribed,
        "startingOffsets": asked.starting,
        "maxBytesPerTrigger": asked.max_bytes,
        "includeHeaders": "true",
    }


def _reads(asked: argparse.Namespace, topic: str) -> bool:
    if asked.topics:
        return topic in topic_names(asked.topics)
    try:
        return re.search(java_pattern(asked.pattern), topic) is not None
    except ValueError as error:
        raise ConfigError(f"--pattern: {error}") from error


def triggered(writer: DataStreamWriter, asked: argparse.Namespace) -> DataStreamWriter:
    return writer.trigger(processingTime=asked.interval) if asked.interval else writer.trigger(availableNow=True)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main_of(main: Callable[[Sequence[str]], int]) -> None:
    """Ends the process with the job's status; never with Python's own 1, which is an audit's word for damage."""
    try:
        status = main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - told in full, and the process ends
        traceback.print_exc()
        status = _NOT_DONE
    sys.exit(status)
