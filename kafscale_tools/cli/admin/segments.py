"""Has the owners of a topic's partitions verify all segments, or rebuild their indexes, page by page."""

import json
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any, Generic, TypeVar

import click

from kafscale.rpc.admin import LIST_PARTITIONS
from kafscale.rpc.methods import Method
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.output import plain, progress
from kafscale_tools.cli.admin.server import Server
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.present import count, printable, table

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses in seconds before an unanswered request is retried, because a gateway or owner may be restarting."""

Q = TypeVar("Q", pb.ListSegmentsRequest, pb.RebuildIndexesRequest)


def read_all(
    server: Server, method: Method[Q, pb.ListSegmentsReply], request: Q, only: int | None, output: str
) -> None:
    """Call ``method`` for all segments of the request's topic, or of ``only`` one partition, and print the results.

    The method must be safe to retry. Raises Failed if a segment is missing or damaged, or was not read.
    """
    topic, reindex = request.topic, isinstance(request, pb.RebuildIndexesRequest)
    known = server.ask(LIST_PARTITIONS, pb.ListPartitionsRequest(topics=[topic])).partitions
    selected = [each for each in known if only in (None, each.partition)]
    if not selected:
        raise Failed(f"The topic {topic} has no partition {only}.", Exit.NOT_FOUND)
    results = [_unread(each, reindex=reindex) for each in selected]
    pages = _Pages(server, method)
    total = sum(max(each.bytes, 0) for each in selected)
    try:
        with progress("reindexing" if reindex else "verifying") as move:

            def advance() -> None:
                move(sum(result["bytes"] for result in results), total)

            for each, result in zip(selected, results, strict=True):
                request.partition = each.partition
                try:
                    _read(pages, request, result, advance)
                except Failed as error:
                    result["error"] = error.message
    finally:
        # It may have taken hours, so print the results even after an interrupt.
        if output == "json":
            click.echo(json.dumps({"partitions": results}, indent=2, ensure_ascii=False))
        else:
            for line in _result_lines(topic, results):
                click.echo(line)
    faulty = sum(len(result["faulty"]) for result in results)
    unread = sum(bool(result["error"]) for result in results)
    problems = [f"{count(faulty, 'segment')} missing or damaged"] if faulty else []
    if unread:
        problems.append(f"{count(unread, 'partition')} not read to the end")
    if problems:
        raise Failed(f"topic {topic}: {', '.join(problems)}", Exit.FAILED)


def _unread(partition: pb.PartitionStatus, *, reindex: bool) -> dict[str, Any]:
    """Return the initial result of a partition.

    It has the number of segments, bytes read and indexes written, the missing or damaged segments, and the reason why
    not all segments were read, which is empty if they were.
    """
    result = {"partition": partition.partition, "segments": 0, "bytes": 0}
    return {**result, **({"reindexed": 0} if reindex else {}), "faulty": [], "error": "interrupted"}


class _Pages(Generic[Q]):
    """Requests pages of segments, and retries up to ``len(_PAUSES)`` times if there is no answer.

    After that, each further page is requested only once, until there is an answer again.
    """

    def __init__(self, server: Server, method: Method[Q, pb.ListSegmentsReply]) -> None:
        self._server = server
        self._method: Method[Q, pb.ListSegmentsReply] = method
        self._failures = 0

    def ask(self, request: Q) -> pb.ListSegmentsReply:
        """Return a page of segments. Raises Failed."""
        while True:
            try:
                page: pb.ListSegmentsReply = self._server.ask(self._method, request)
            except Failed as error:
                if error.exit_code != Exit.UNAVAILABLE or self._failures == len(_PAUSES):
                    raise
                sleep(_PAUSES[self._failures])
                self._failures += 1
            else:
                self._failures = 0
                return page


def _read(pages: _Pages[Q], request: Q, result: dict[str, Any], advance: Callable[[], None]) -> None:
    """Read all pages of a partition and add them to ``result``. Raises Failed."""
    request.start_offset = 0
    while True:
        page = pages.ask(request)
        result["segments"] += len(page.segments)
        result["bytes"] += sum(each.bytes for each in page.segments)
        result["faulty"] += [plain(each) for each in page.segments if each.faults]
        if "reindexed" in result:
            result["reindexed"] += sum(each.reindexed for each in page.segments)
        advance()
        request.start_offset = page.next_offset
        if request.start_offset >= page.high_watermark:
            result["error"] = ""
            return


def _result_lines(topic: str, results: list[dict[str, Any]]) -> Iterator[str]:
    written = ["REINDEXED"] if "reindexed" in results[0] else []
    heads = ["TOPIC", "PARTITION", "SEGMENTS", "BYTES", *written, "DAMAGED"]
    rows = []
    for each in results:
        # Unless the partition was read to its end, 0 would be misleading.
        damaged = str(len(each["faulty"])) if each["faulty"] or not each["error"] else "-"
        counters = [f"{each[name]:,}" for name in ("segments", "bytes", *map(str.lower, written))]
        rows.append((topic, str(each["partition"]), *counters, damaged))
    yield from table(heads, rows, left=("TOPIC",), indent="")
    for result in results:
        for each in result["faulty"]:
            yield from (printable(fault) for fault in each["faults"])
        if result["error"]:
            yield f"partition {result['partition']} not read to the end: {printable(result['error'])}"
