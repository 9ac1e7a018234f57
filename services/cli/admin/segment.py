"""`kafscale segment`: what a log is made of in the object store, and whether it is whole."""

import json
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any

import click

from kafscale.rpc.admin import LIST_PARTITIONS, LIST_SEGMENTS
from kafscale.v1 import admin_pb2 as pb
from services.cli.admin.arguments import LIMIT, OFFSET, PARTITION
from services.cli.admin.output import as_json, plain, progress, show
from services.cli.admin.server import Exit, Failed, Server, asking
from services.cli.present import count, printable, table

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before the same is asked again: a gateway or an owner may be on its way back."""


@click.group()
def segment() -> None:
    """List and verify the segments of a partition."""


@segment.command("list")
@click.argument("topic")
@click.argument("partition", type=PARTITION)
@click.option("--from", "start", metavar="OFFSET", type=OFFSET, help="Begin at the one that holds this.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many at most.")
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
        yield f"there are more: --from {reply.next_offset}"


@segment.command()
@click.argument("topic")
@click.option("--partition", type=PARTITION, help="Only this one.")
@as_json
@asking
def verify(server: Server, *, topic: str, partition: int | None, output: str) -> None:
    """Read all segments of a topic from the object store, with their indexes, and check them.

    Ends with status 1 where one is missing or damaged, or a partition cannot be read to its end. Storage does the
    reading, which takes its time and costs requests to the object store. `kafscale inspect --verify` tells more of a
    single one.
    """
    known = server.ask(LIST_PARTITIONS, pb.ListPartitionsRequest(topics=[topic])).partitions
    wanted = [each for each in known if partition in (None, each.partition)]
    if not wanted:
        raise Failed(f"The topic {topic} has no partition {partition}.", Exit.NOT_FOUND)
    results = [_unread(each) for each in wanted]
    pages = _Pages(server)
    total = sum(max(each.bytes, 0) for each in wanted)
    try:
        with progress("verifying") as move:

            def advance() -> None:
                move(sum(result["bytes"] for result in results), total)

            for each, result in zip(wanted, results, strict=True):
                try:
                    _verify(pages, each, result, advance)
                except Failed as error:
                    result["error"] = error.message
    finally:
        # It may have taken hours: who interrupts it learns what is known by then.
        if output == "json":
            click.echo(json.dumps({"partitions": results}, indent=2, ensure_ascii=False))
        else:
            for line in _result_lines(topic, results):
                click.echo(line)
    faulty = sum(len(result["faulty"]) for result in results)
    unread = sum(bool(result["error"]) for result in results)
    wrong = [f"{count(faulty, 'segment')} not whole"] if faulty else []
    if unread:
        wrong.append(f"{count(unread, 'partition')} not read to the end")
    if wrong:
        raise Failed(f"topic {topic}: {', '.join(wrong)}", Exit.FAILED)


def _unread(partition: pb.PartitionStatus) -> dict[str, Any]:
    """A partition's result: segments and bytes that were read, the segments that are not whole, and why not all were
    read; empty: they were."""
    return {"partition": partition.partition, "segments": 0, "bytes": 0, "faulty": [], "error": "interrupted"}


class _Pages:
    """Asks for segments, which may be asked again: so it does, some times in a row, where there is no answer.

    When that did not help, each further page is asked for once, until there is an answer again.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._failures = 0

    def ask(self, request: pb.ListSegmentsRequest) -> pb.ListSegmentsReply:
        """Raises Failed."""
        while True:
            try:
                page = self._server.ask(LIST_SEGMENTS, request)
            except Failed as error:
                if error.exit_code != Exit.UNAVAILABLE or self._failures == len(_PAUSES):
                    raise
                sleep(_PAUSES[self._failures])
                self._failures += 1
            else:
                self._failures = 0
                return page


def _verify(pages: _Pages, partition: pb.PartitionStatus, result: dict[str, Any], advance: Callable[[], None]) -> None:
    """Raises Failed; ``result`` has what was read before."""
    start = 0
    while True:
        request = pb.ListSegmentsRequest(
            topic=partition.topic, partition=partition.partition, start_offset=start, verify=True
        )
        page = pages.ask(request)
        result["segments"] += len(page.segments)
        result["bytes"] += sum(each.bytes for each in page.segments)
        result["faulty"] += [plain(each) for each in page.segments if each.faults]
        advance()
        start = page.next_offset
        if start >= page.high_watermark:
            result["error"] = ""
            return


def _result_lines(topic: str, results: list[dict[str, Any]]) -> Iterator[str]:
    heads = ("TOPIC", "PARTITION", "SEGMENTS", "BYTES", "NOT WHOLE")
    rows = []
    for each in results:
        # Of what was not read to the end nothing says that it is whole.
        not_whole = str(len(each["faulty"])) if each["faulty"] or not each["error"] else "-"
        rows.append((topic, str(each["partition"]), f"{each['segments']:,}", f"{each['bytes']:,}", not_whole))
    yield from table(heads, rows, left=("TOPIC",), indent="")
    for result in results:
        for each in result["faulty"]:
            yield from (printable(fault) for fault in each["faults"])
        if result["error"]:
            yield f"partition {result['partition']} not read to the end: {printable(result['error'])}"
