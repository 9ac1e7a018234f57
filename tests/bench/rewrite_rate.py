"""How fast an indexer's process compacts and merges, on one core, without the object store.

A log of keyed records in segments of 4 MiB is rewritten: each key once more for each ten records before it.

    python -m tests.bench.rewrite_rate [--megabytes 64]
"""

import os
import time
from collections.abc import Iterator

import click

from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.segment.reader import parse_segment
from kafscale.segment.writer import PREFIX_SIZE, build_segment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.indexer_pb2 import CompactionRules, RewriteInput, RewriteRequest, RewriteStep
from services.indexer.rewriting.passes import Read, Store, rewriting

_SEGMENT_BYTES = 4 << 20
_BATCH_BYTES = 64 << 10
_TARGET_BYTES = 128 << 20
_MEMORY_BYTES = 128 << 20
_DAY_MS = 86_400_000


def _segments(size: int, record_bytes: int, codec: Codec, keys: int) -> Iterator[tuple[RewriteInput, bytes]]:
    offset, written = 0, 0
    value = os.urandom(record_bytes // 2).hex().encode()[:record_bytes]
    while written < size:
        batches, base, filled = list[bytes](), offset, 0
        while filled < _SEGMENT_BYTES:
            count = max(1, _BATCH_BYTES // record_bytes)
            records = [Record(offset + i, 1_000, b"%d" % ((offset + i) % keys), value, ()) for i in range(count)]
            batches.append(build_batch(records, base_offset=offset, codec=codec, leader_epoch=1))
            offset += count
            filled += count * record_bytes
        built = build_segment(
            [(batch[:PREFIX_SIZE], batch[PREFIX_SIZE:]) for batch in batches], epoch=1, created_ms=1_000
        )
        yield RewriteInput(start=base, end=offset, epoch=1), bytes(built.data)
        written += filled


def _rewrite(segments: dict[int, bytes], request: RewriteRequest) -> float:
    began = time.process_time()
    work = rewriting(request, secret=b"bench", created_ms=1_000)
    wanted = next(work)
    try:
        while True:
            if isinstance(wanted, Read):
                wanted = work.send(segments[wanted.input.start])
            elif isinstance(wanted, Store):
                wanted = work.send(wanted.data)
            else:
                wanted = next(work)
    except StopIteration:
        return time.process_time() - began


@click.command()
@click.option("--megabytes", default=64, show_default=True, help="The size of the records of each log.")
def main(megabytes: int) -> None:
    """Measure how much of a log a core merges and compacts in a second."""
    click.echo("| record | codec | merge, MB/s | compaction, MB/s |\n|---|---|---|---|")
    for record_bytes in (1000, 100):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            size = megabytes << 20
            made = list(_segments(size, record_bytes, codec, keys=size // record_bytes // 10))
            inputs, segments = [one for one, _ in made], {one.start: data for one, data in made}
            for data in segments.values():
                parse_segment(data)
            request = RewriteRequest(
                partition=PartitionRef(topic="t", topic_id=bytes(16)),
                epoch=1,
                attempt=1,
                steps=[RewriteStep(inputs=inputs)],
                target_bytes=_TARGET_BYTES,
            )
            merged = _rewrite(segments, request)
            rules = CompactionRules(
                dirty=inputs,
                end=inputs[-1].end,
                now_ms=1_000,
                horizon_ms=_DAY_MS,
                memory_bytes=_MEMORY_BYTES,
                batch_bytes=64 << 20,
            )
            request.compaction.CopyFrom(rules)
            compacted = _rewrite(segments, request)
            click.echo(
                f"| {record_bytes} B | {codec.name} | {size / merged / 1e6:.0f} | {size / compacted / 1e6:.0f} |"
            )


if __name__ == "__main__":
    main()
