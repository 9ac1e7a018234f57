"""What a rewrite does, without IO: a generator that asks for what it needs, and is sent the answers.

A merge copies all batches. A compaction first collects the last offset of each key of the dirty objects, and then
removes the records that are not the last ones of their keys (`kafscale.compaction.cleaning`). If the keys do not fit in
memory, the pass ends at the end of the last object whose keys fitted.

Every object is verified when it is read, with the checksums of its batches, because damage must not get new checksums.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafscale.compaction.cleaning import Cleaner, LastOfProducer, collect_keys
from kafscale.compaction.key_map import KeyMap
from kafscale.compaction.transactions import Transactions
from kafscale.errors import CorruptData, Unavailable
from kafscale.records.checksum import Buffer
from kafscale.rewritten.object import parse_object
from kafscale.rewritten.rewrite import Rewriter, Rewritten
from kafscale.segment.format import CorruptSegment
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.v1.indexer_pb2 import CompactionRules, RewriteInput, RewriteRequest, RewrittenStep
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.indexer.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Read:
    """Asks for the bytes of the object of ``input``."""

    input: RewriteInput


@dataclass(frozen=True, slots=True)
class Store:
    """Asks to store an object with its index, and then for the object's bytes as they are read back."""

    entry: RewrittenEntry
    index: Buffer
    data: Buffer


@dataclass(frozen=True, slots=True)
class Finished:
    """Reports a step. All of its objects are stored and verified. There is no answer."""

    step: RewrittenStep


Wanted = Read | Store | Finished
Pass = Generator[Wanted, Buffer | None, None]
_Clean = Callable[[Buffer], Buffer | None]
_Asking = Generator[Wanted, Buffer | None, ParsedSegment | None]


def check(request: RewriteRequest) -> None:
    """Raise InvalidRequest if the request is inconsistent."""
    if request.epoch < 1 or not request.attempt or not request.target_bytes:
        raise InvalidRequest(f"epoch {request.epoch}, attempt {request.attempt}, {request.target_bytes} bytes")
    if not request.steps or not all(step.inputs for step in request.steps):
        raise InvalidRequest("no steps, or one without inputs")
    inputs = [one for step in request.steps for one in step.inputs]
    _check_inputs(inputs)
    if not request.HasField("compaction"):
        return
    rules = request.compaction
    if not rules.dirty or rules.dirty[-1].end != rules.end or inputs[-1].end > rules.end:
        raise InvalidRequest(f"the pass ends at {rules.end}, which is not where the last object to read ends")
    if not rules.memory_bytes or not rules.batch_bytes:
        raise InvalidRequest(f"{rules.memory_bytes} bytes for keys, {rules.batch_bytes} bytes for a batch")
    _check_inputs(rules.dirty)
    if not rules.resumed and rules.dirty[0].end <= inputs[0].start:
        raise InvalidRequest(f"the steps begin at {inputs[0].start}, above dirty objects")
    # The pass may end after any dirty object.
    ends = {one.end for one in inputs}
    for one in rules.dirty:
        if inputs[0].start < one.end < inputs[-1].end and one.end not in ends:
            raise InvalidRequest(f"no object of a step ends at {one.end}, where a dirty object ends")


def inputs_of(request: RewriteRequest) -> list[RewriteInput]:
    """Return the inputs whose objects a rewrite reads that does all of its steps, in the order in which it does."""
    steps = (one for step in request.steps for one in step.inputs)
    return [one for one in (*request.compaction.dirty, *steps) if _has_object(one)]


def rewriting(request: RewriteRequest, *, secret: bytes, created_ms: int) -> Pass:
    """Rewrite what a request asks for, which was checked.

    ``secret``: up to 64 random bytes, so that nobody can choose keys that are taken for the same one. ``created_ms``:
    the time of creation in the objects.

    Raises CorruptData if the object that was read last is damaged, or cannot follow the one before it; InvalidRequest
    if the keys do not fit in memory; Unavailable if what was read back is not what was to be stored.
    """
    pass_end, clean = 0, _copy
    if request.HasField("compaction"):
        rules = request.compaction
        keys = KeyMap(rules.memory_bytes, secret=secret)
        pass_end = yield from _collect(rules, keys)
        clean = _cleaner(rules, keys).clean
    for step in request.steps:
        inputs = step.inputs[:] if not pass_end else [one for one in step.inputs if one.end <= pass_end]
        if inputs:
            yield from _Step(request, inputs, pass_end, created_ms).run(clean)
        if len(inputs) < len(step.inputs):
            return


def _collect(rules: CompactionRules, keys: KeyMap) -> Generator[Wanted, Buffer | None, int]:
    """Collect the keys of the dirty objects, and return where the pass ends."""
    transactions = Transactions(from_start=not rules.resumed)
    end = None
    for one in rules.dirty:
        parsed = yield from _read(one)
        if parsed is not None:
            rest = collect_keys(_batches(parsed), keys, transactions, max_bytes=rules.batch_bytes)
            if rest is not None:
                if end is None or rules.resumed:
                    raise InvalidRequest(
                        f"the keys up to offset {one.end} do not fit in {rules.memory_bytes} bytes of memory "
                        "(KAFSCALE_COMPACTION_MEMORY)"
                    )
                return end
        end = one.end
    return rules.end


def _cleaner(rules: CompactionRules, keys: KeyMap) -> Cleaner:
    return Cleaner(
        keys,
        Transactions(from_start=not rules.resumed),
        {last.producer_id: LastOfProducer(last.last_offset, last.epoch) for last in rules.producers},
        now_ms=rules.now_ms if rules.HasField("now_ms") else None,
        horizon_ms=rules.horizon_ms,
        max_bytes=rules.batch_bytes,
    )


class _Step:
    """One step of a request: the rewriting of ``inputs``."""

    def __init__(self, request: RewriteRequest, inputs: Sequence[RewriteInput], pass_end: int, created_ms: int) -> None:
        self._inputs = inputs
        self._done = RewrittenStep(start=inputs[0].start, end=inputs[-1].end, pass_end=pass_end)
        self._rewriter = Rewriter(
            _begin(inputs[0]),
            epoch=request.epoch,
            attempt=request.attempt,
            created_ms=created_ms,
            target_bytes=request.target_bytes,
        )

    def run(self, clean: _Clean) -> Pass:
        done, inputs = self._done, self._inputs
        # If all of a rewritten object stays, it need not be stored once more.
        unchanged = len(inputs) == 1 and inputs[0].HasField("rewritten")
        for one in inputs:
            parsed = yield from _read(one)
            if parsed is None:
                continue
            done.bytes_in += len(parsed.data)
            done.records_in += parsed.header.message_count
            for batch in _batches(parsed):
                stays = clean(batch)
                unchanged = unchanged and stays is batch
                complete = self._rewriter.add(stays) if stays is not None else None
                if complete is not None:
                    unchanged = False
                    yield from self._store(complete)
        if unchanged:
            self._add(inputs[0].rewritten)
        else:
            yield from self._store(self._rewriter.finish(done.end))
        yield Finished(done)

    def _store(self, part: Rewritten) -> Pass:
        built = part.built
        if built is None:
            self._add(RewrittenEntry(next_offset=part.end))
            return
        read_back = yield Store(built.entry, built.index, built.data)
        try:
            parse_object(built.entry, read_back or b"", check_batches=True)
        except CorruptData as error:
            raise Unavailable(f"the stored object cannot be read back: {error}") from error
        self._add(built.entry)

    def _add(self, entry: RewrittenEntry) -> None:
        self._done.entries.append(entry)
        self._done.bytes_out += entry.size
        self._done.records_out += entry.records + entry.control_records


def _read(one: RewriteInput) -> _Asking:
    """Ask for an object and verify it. Return None if there is none."""
    if not _has_object(one):
        return None
    data = (yield Read(one)) or b""
    if one.HasField("rewritten"):
        return parse_object(one.rewritten, data, check_batches=True)
    parsed = parse_segment(data, check_batches=True)
    found = parsed.header
    # After imported segments, offsets may be missing.
    ends_well = parsed.next_offset == one.end or (not one.epoch and parsed.next_offset < one.end)
    if (found.base_offset, found.epoch) != (one.start, one.epoch) or not ends_well:
        raise CorruptSegment(
            f"offsets {found.base_offset} up to {parsed.next_offset} of epoch {found.epoch}, instead of {one.start} up "
            f"to {one.end} of epoch {one.epoch}"
        )
    return parsed


def _batches(parsed: ParsedSegment) -> Iterator[memoryview]:
    data = memoryview(parsed.data)
    for position, end in zip(parsed.positions, parsed.ends, strict=True):
        yield data[position:end]


def _check_inputs(inputs: Iterable[RewriteInput]) -> None:
    end = None
    for one in inputs:
        found = one.rewritten
        if not 0 <= one.start < one.end or (end is not None and one.start != end):
            raise InvalidRequest(f"an object of offsets {one.start} to {one.end} after {end}")
        if one.HasField("rewritten") and found.epoch:
            begins = found.base_offset <= one.start if end is None else found.base_offset == one.start
            if not begins or found.next_offset != one.end:
                raise InvalidRequest(
                    f"the object of offsets {one.start} to {one.end} has {found.base_offset} to {found.next_offset}"
                )
        end = one.end


def _begin(one: RewriteInput) -> int:
    """Return where the object begins, which is below the step if the log starts within the object."""
    return one.rewritten.base_offset if one.HasField("rewritten") and one.rewritten.epoch else one.start


def _has_object(one: RewriteInput) -> bool:
    return not one.HasField("rewritten") or bool(one.rewritten.epoch)


def _copy(batch: Buffer) -> Buffer | None:
    return batch
