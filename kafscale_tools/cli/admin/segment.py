"""`kafscale segment`: lists and verifies the segments of a log, and rebuilds indexes."""

from collections.abc import Iterator

import click

from kafscale.rpc.admin import LIST_SEGMENTS, REBUILD_INDEXES
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import LIMIT, OFFSET, PARTITION
from kafscale_tools.cli.admin.output import as_json, show
from kafscale_tools.cli.admin.segments import read_all
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.present import facts, printable, table


@click.group()
def segment() -> None:
    """List, describe and verify the segments of a topic, and rebuild indexes."""


@segment.command("list")
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@click.option("--from", "start", metavar="OFFSET", type=OFFSET, help="Begin with the segment at this offset.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="The maximum number of segments.")
@as_json
@asking
def list_segments(server: Server, *, topic: str, partition: int, start: int | None, limit: int, output: str) -> None:
    """List segments with their offsets, sizes, epochs, and keys in the bucket."""
    reply = pb.ListSegmentsReply(next_offset=start or 0)
    while len(reply.segments) < limit:
        request = pb.ListSegmentsRequest(
            topic=topic, partition=partition, start_offset=reply.next_offset, limit=limit - len(reply.segments)
        )
        page = server.ask(LIST_SEGMENTS, request)
        reply.MergeFrom(page)
        if page.next_offset >= page.high_watermark:
            break
    show(output, reply, _lines(reply))


def _lines(reply: pb.ListSegmentsReply) -> Iterator[str]:
    heads = ("FIRST OFFSET", "LAST OFFSET", "BYTES", "EPOCH", "OBJECT")
    rows = [
        (
            str(each.base_offset),
            str(each.end_offset - 1),
            f"{each.bytes:,}",
            str(each.epoch),
            printable(each.object) or "-",
        )
        for each in reply.segments
    ]
    yield from table(heads, rows, left=("OBJECT",), indent="")
    yield from (printable(fault) for each in reply.segments for fault in each.faults)
    if reply.next_offset < reply.high_watermark:
        yield f"more segments follow: --from {reply.next_offset}"


@segment.command()
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@click.argument("offset", type=OFFSET)
@as_json
@asking
def describe(server: Server, *, topic: str, partition: int, offset: int, output: str) -> None:
    """Show and verify the segment that contains an offset. Exits with status 1 if it is missing or damaged."""
    request = pb.ListSegmentsRequest(topic=topic, partition=partition, start_offset=offset, limit=1, verify=True)
    reply = server.ask(LIST_SEGMENTS, request)
    if not reply.segments or reply.segments[0].base_offset > offset:
        text = f"No segment of {topic}-{partition} contains offset {offset}; the log ends at {reply.high_watermark}."
        raise Failed(text, Exit.NOT_FOUND)
    (found,) = reply.segments
    show(output, found, _described(topic, partition, found))
    if found.faults:
        raise Failed(f"the segment at offset {found.base_offset} is missing or damaged", Exit.FAILED)


def _described(topic: str, partition: int, segment: pb.SegmentStatus) -> Iterator[str]:
    yield f"Segment of {topic}-{partition}: {printable(segment.object) or 'missing'}"
    properties = [
        ("offsets", f"{segment.base_offset} to {segment.end_offset - 1}"),
        ("bytes", f"{segment.bytes:,}"),
        ("leader epoch", str(segment.epoch)),
        ("verified", "; ".join(map(printable, segment.faults)) or "segment and index are intact"),
    ]
    yield from facts(properties)


@segment.command()
@click.argument("topic")
@click.option("--partition", type=PARTITION, help="Only this partition.")
@as_json
@asking
def verify(server: Server, *, topic: str, partition: int | None, output: str) -> None:
    """Read all segments and indexes of a topic from the object store and verify them.

    Exits with status 1 if any is missing or damaged, or if a partition cannot be read to its end. The storage instances
    read the segments, which takes time and costs requests to the object store. For details of a single segment, use
    `kafscale inspect --verify`.
    """
    read_all(server, LIST_SEGMENTS, pb.ListSegmentsRequest(topic=topic, verify=True), partition, output)


@segment.command()
@click.argument("topic")
@click.option("--partition", type=PARTITION, help="Only this partition.")
@as_json
@asking
def reindex(server: Server, *, topic: str, partition: int | None, output: str) -> None:
    """Rebuild missing or damaged indexes of a topic.

    Reads all segments as `verify` does. Correct indexes are not changed, and missing or damaged segments get no index.
    Exits with status 1 if there are any such segments, or if a partition cannot be read to its end.
    """
    read_all(server, REBUILD_INDEXES, pb.RebuildIndexesRequest(topic=topic), partition, output)
