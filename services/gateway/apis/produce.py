"""Produce (0), versions 0 to 13: appends records to partitions.

- 0: message sets of magic 0. The response contains base offsets.
- 1: adds the throttle time.
- 2: accepts magic 1. Adds the append time for topics with LogAppendTime.
- 3: accepts only batches of magic 2. Adds a transactional id, which is refused because there are no transactions.
- 5: adds the log start offset.
- 7: accepts zstd.
- 8: adds error messages.
- 9: flexible.
- 10: adds leader hints, which are optional and not sent.
- 13: identifies topics by id.
- 4, 6, 11, 12: no changes.

With acks=0 or acks=1, a request is complete when its records are in the owner's buffer. With acks=all, it is complete
when they are durable. If records become durable without delay, acks=1 waits for that too, so that they can be read. If
the request's timeout expires first, the response is REQUEST_TIMED_OUT, and the records may still become durable. As in
Kafka, an error for records that were in the buffer and may be lost contains the offset that they had there.

Old message sets are converted to one batch of magic 2. A record set may contain several batches: Kafka refuses that
with INVALID_RECORD, KafScale only if one of them has a producer id. A batch with a producer id is stored as it is. The
maximum timestamp in a batch header is stored as it is too, while a Kafka broker computes it from the records. Lookups
and filters by time trust it. A record count in a header is refused with INVALID_RECORD if so many records do not fit
in the batch's bytes; a Kafka broker counts the records.

If a batch of an idempotent producer is refused with a retriable error, its later batches for the partition are refused
too until it comes again, for at most 3 seconds. They may have been sent before the client knew of the refusal.

A topic whose `cleanup.policy` includes `compact` refuses a batch with INVALID_RECORD if a record in it has no key. From
version 8 on, the response lists these records, at most 1,000 in one response, as in Kafka. Unlike in Kafka, the log
start offset in that response is -1, because the gateway refuses the batch and only storage knows the offset.

A request that exceeds the quota of its client is appended. The throttle time is what remains of it when the response is
sent.

A partition forgets an idempotent producer that has sent it nothing for KAFSCALE_PRODUCER_EXPIRY_MS (one day by
default). It remembers a producer whose records were removed by retention or DeleteRecords. It does not know a producer
whose first batches were lost with their owner. From an unknown producer it accepts only sequence 0; any other sequence
is answered with UNKNOWN_PRODUCER_ID and the log start offset, and clients continue with a new epoch or id.
"""

from collections.abc import Callable
from functools import partial

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka.produce import (
    API_KEY,
    NAMES_BY_ID_FROM,
    ProduceRequest,
    ProduceResult,
    ProduceTopicResults,
    decode_request,
    encode_response,
)
from kafscale.kafka.wire import Buffer
from kafscale.records.batch import BatchHeader
from kafscale.rpc.limits import LARGEST_PAYLOAD
from kafscale.security.asks import WRITE_TOPIC
from services.gateway.api import Api, Call, Environment, Order, Work
from services.gateway.owners.errors import NEVER_KEPT, OVERLOADED, TIMED_OUT
from services.gateway.owners.link import StorageLink
from services.gateway.owners.pending import PendingAppend
from services.gateway.owners.refused import SentSequence
from services.gateway.topic_cache import KnownTopic
from services.gateway.validation import (
    RefusedRecords,
    check_records,
    convert_legacy,
    is_cheap,
    is_legacy,
    with_keys,
)

_ACKS = (-1, 0, 1)
_LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
_MOST_RECORD_ERRORS = 1000
"""The maximum number of refused records that one response lists. The partition's message has the total."""


class _Produce:
    """One request. It collects the results of the partitions and responds when the last one is known.

    It keeps no reference to the request's bytes, because a response may be held long after storage has the records.
    """

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._slot = call.request.slot
        self._client = call.client
        self._counters = call.environment.counters
        self._router = call.environment.router
        self._refused = call.environment.refused
        self._version = call.version
        self._traced = call.environment.traced
        tracer = call.environment.tracer
        self._span = None if tracer is None else tracer.begin("Produce", acks=request.acks)
        self._acks = request.acks
        self._charge = call.charge
        self.deadline = trio.current_time() + min(max(request.timeout_ms, 0), _LONGEST_TIMEOUT_MS) / 1000
        self.topics: list[ProduceTopicResults] = []
        self.appends: list[tuple[StorageLink, PendingAppend]] = []
        # Records that must be checked or converted in a thread before anything is sent, each with the function.
        self.decoding: list[tuple[ProduceResult, KnownTopic, Callable[[], Buffer], BatchHeader | None]] = []
        self._errors_left = _MOST_RECORD_ERRORS
        # A link had no space when an append was added for it.
        self._is_crowded = False
        self._open = 0

    def add(self, result: ProduceResult, topic: KnownTopic, records: Buffer, header: BatchHeader | None) -> None:
        """Add records that passed all checks, with the ``header`` if it is known and they are one batch.

        Records that exceed the size limit of calls to storage are refused.
        """
        if len(records) > LARGEST_PAYLOAD:
            result.error_code = ErrorCode.message_too_large
            result.error_message = (
                f"{len(records)} bytes for one partition exceed the limit of {LARGEST_PAYLOAD} bytes per request"
            )
            return
        partition = topic.partitions[result.index]
        key = (topic.info.id, result.index)
        sequence = None if header is None or header.producer_id < 0 else SentSequence.of(header)
        link = self._router.link_for_append(key)
        if link is None:
            result.error_code, result.error_message = NEVER_KEPT, "no storage instance is known for the partition"
            if sequence is not None:
                self._refused.note(key, sequence, trio.current_time())
            return
        append = PendingAppend(
            partition,
            key,
            records,
            acks=self._acks,
            deadline=self.deadline,
            on_finish=partial(self._finished, result),
            header=header,
            sequence=sequence,
            trace="" if self._span is None else self._span.place,
        )
        self.appends.append((link, append))
        if link.queue.full:
            self._is_crowded = True

    def refuse(self, result: ProduceResult, refused: RefusedRecords) -> None:
        result.error_code, result.error_message = refused.code, str(refused)
        result.record_errors = refused.records[: self._errors_left]
        self._errors_left -= len(result.record_errors)

    @property
    def must_wait(self) -> bool:
        return bool(self.decoding) or self._is_crowded

    async def wait_for_room(self) -> None:
        """Wait until all links have space, at most until the deadline. `send` refuses appends to full links."""
        with trio.move_on_at(self.deadline):
            for link, _ in self.appends:
                await link.queue.wait_for_room()

    def send(self) -> None:
        """Send the appends to storage. The response is sent when all outcomes are known."""
        appends, self.appends = self.appends, []
        self._open = len(appends)
        if not appends:
            self._reply()
        sent: dict[StorageLink, list[PendingAppend]] = {}
        refused = self._refused
        for link, append in appends:
            sequence = append.sequence
            if sequence is not None and refused and refused.is_behind(append.key, sequence, trio.current_time()):
                append.finish(OVERLOADED, "an earlier batch of the producer was refused")
            elif link.queue.full:
                append.finish(OVERLOADED, "no room on the way to storage")
            else:
                sent.setdefault(link, []).append(append)
        for link, found in sent.items():
            link.send(found)

    def _finished(self, result: ProduceResult, append: PendingAppend) -> None:
        result.error_code = append.error
        # Also set with UNKNOWN_PRODUCER_ID: the Java client needs it to decide that a new epoch helps.
        result.log_start_offset = append.log_start
        # Also set if the append was buffered but not seen to become durable.
        result.base_offset = append.base_offset
        result.log_append_time_ms = append.append_time_ms
        if append.error:
            result.error_message = append.detail or None
            # After its own timeout the client has given up this request, and may have sent the batch again.
            if append.sequence is not None and append.error.retriable and append.error is not TIMED_OUT:
                self._refused.note(append.key, append.sequence, trio.current_time())
        else:
            if append.sequence is not None:
                self._refused.succeeded(append.key, append.sequence)
            if append.trace:
                self._traced.note(append.key, append.base_offset, append.trace)
        self._open -= 1
        if self._open == 0:
            self._reply()

    def _reply(self) -> None:
        failed = [result for topic in self.topics for result in topic.results if result.error_code]
        if failed:
            self._counters.answered(API_KEY, (result.error_code for result in failed))
        if self._span is not None:
            self._span.end(ErrorCode(failed[0].error_code).name if failed else "")
        throttle_ms = 0 if self._charge is None else self._charge.settle()
        if self._acks != 0:
            self._slot.reply(encode_response(self.topics, self._version, throttle_ms))
            return
        self._slot.skip()
        if failed:
            # As in Kafka, closing the connection is the only way to report an error to an acks=0 producer.
            self._client.close(f"an acks=0 request failed: {ErrorCode(failed[0].error_code).name}")


def handle(call: Call) -> Work | None:
    settings = call.environment.settings
    request = decode_request(call.request.body, call.version, most_without_records=settings.max_control_request_bytes)
    if call.charge is not None:
        call.charge.produced(call.request.slot.request_bytes)
    produce = _Produce(call, request)
    refused = _refused_as_a_whole(request)
    if refused is not None:
        _fail_all(produce, request, *refused)
    else:
        _check(produce, request, call)
    if produce.must_wait:
        return _continue_later(produce, call.environment)
    produce.send()
    return None


def _refused_as_a_whole(request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    if request.acks not in _ACKS:
        return ErrorCode.invalid_required_acks, f"acks={request.acks} is not one of -1, 0, 1"
    if request.transactional_id is not None:
        return ErrorCode.invalid_request, "transactions are not supported"
    return None


def _check(produce: _Produce, request: ProduceRequest, call: Call) -> None:
    environment = call.environment
    version = call.version
    authorization = call.client.authorization
    by_id = version >= NAMES_BY_ID_FROM
    now_ms, max_bytes = environment.now_ms(), environment.settings.upconvert_bytes
    for topic in request.topics:
        known = environment.topics.find(topic.name, topic.topic_id)
        allowed = authorization.allows(WRITE_TOPIC, topic.name if known is None else known.info.name)
        results: list[ProduceResult] = []
        produce.topics.append(ProduceTopicResults(topic.name, topic.topic_id, results))
        for partition in topic.partitions:
            result = ProduceResult(partition.index)
            results.append(result)
            if not allowed and not (by_id and known is None):
                result.error_code = ErrorCode.topic_authorization_failed
            elif known is None:
                result.error_code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            elif not 0 <= partition.index < len(known.partitions):
                result.error_code = ErrorCode.unknown_topic_or_partition
            elif partition.records is not None and is_legacy(partition.records, version):
                name = f"{known.info.name}-{partition.index}"
                convert = partial(
                    convert_legacy, partition.records, known.config, name, now_ms=now_ms, max_bytes=max_bytes
                )
                produce.decoding.append((result, known, convert, None))
            else:
                try:
                    records = partition.records or memoryview(b"")
                    header = check_records(records, known.config, version=version, now_ms=now_ms)
                    if known.config.compacted:
                        name = f"{known.info.name}-{partition.index}"
                        checked = partial(with_keys, records, name, max_bytes=max_bytes)
                        if not is_cheap(records):
                            produce.decoding.append((result, known, checked, header))
                            continue
                        checked()
                except RefusedRecords as refused:
                    produce.refuse(result, refused)
                else:
                    produce.add(result, known, records, header)


async def _continue_later(produce: _Produce, environment: Environment) -> None:
    for result, known, decode, header in produce.decoding:
        try:
            records = await trio.to_thread.run_sync(decode, limiter=environment.conversions)
        except RefusedRecords as refused:
            produce.refuse(result, refused)
        else:
            produce.add(result, known, records, header)
    produce.decoding = []
    await produce.wait_for_room()
    produce.send()


def _fail_all(produce: _Produce, request: ProduceRequest, error: ErrorCode, message: str) -> None:
    for topic in request.topics:
        results = [
            ProduceResult(partition.index, error_code=error, error_message=message) for partition in topic.partitions
        ]
        produce.topics.append(ProduceTopicResults(topic.name, topic.topic_id, results))


def fail(call: Call, error: ErrorCode) -> None:
    request = decode_request(call.request.body, call.version)
    produce = _Produce(call, request)
    _fail_all(produce, request, error, "the gateway could not handle the request")
    produce.send()


API = Api(API_KEY, "Produce", range(14), handle, fail, order=Order.APPENDS, largest=lambda _: None, asks=(WRITE_TOPIC,))
