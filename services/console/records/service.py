"""Answers what the pages of records ask for."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import trio
from kio.schema.errors import ErrorCode

from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.errors import Unavailable
from kafscale.kafka_client.reader import Fetched, FetchLimits, TopicReader
from kafscale.kafka_client.requests import NOT_ALLOWED, Refusal
from kafscale.process.http import Response
from services.console.gateways import Gateways
from services.console.live import Send
from services.console.records import kcat
from services.console.records.brokers import BrokerAccess
from services.console.records.decoding import Decoder
from services.console.records.errors import RecordsRefused
from services.console.records.producing import NewRecord, parse_record, produce
from services.console.records.query import OFFSET, Query, parse_query
from services.console.records.reading import Reading
from services.console.records.registry import Registry
from services.console.records.settings import RecordsSettings
from services.console.records.sifting import Found, Sieve, Turns, pieces, row
from services.console.records.tail import Tail
from services.console.requests import name

_RECORDS = re.compile(r"/api/topics/([^/]+)/records")
_COMMAND = re.compile(r"/api/topics/([^/]+)/records/kcat")
_RECORD = re.compile(r"/api/topics/([^/]+)/records/([0-9]{1,10})/([0-9]{1,19})")
_PART = re.compile(r"/api/topics/([^/]+)/records/([0-9]{1,10})/([0-9]{1,19})/(key|value)")
_TAIL = re.compile(r"/live/topics/([^/]+)/records")
_ROWS = 100
_RATE = 20
_DECODING = 2
"""How many fetched parts are decoded at the same time."""
_TAIL_SECONDS = 3.0
"""How long a tail retries before it says that there is no answer."""
_STATUSES = {
    ErrorCode.unknown_topic_or_partition: HTTPStatus.NOT_FOUND,
    ErrorCode.invalid_topic_exception: HTTPStatus.BAD_REQUEST,
    ErrorCode.offset_out_of_range: HTTPStatus.NOT_FOUND,
    ErrorCode.message_too_large: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_record: HTTPStatus.BAD_REQUEST,
    ErrorCode.sasl_authentication_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.unsupported_sasl_mechanism: HTTPStatus.CONFLICT,
    ErrorCode.illegal_sasl_state: HTTPStatus.CONFLICT,
}
Talk = Callable[[Send], Awaitable[None]]


def status_of(refusal: Refusal) -> HTTPStatus:
    """Return the status of the answer to a request that a broker refused."""
    if refusal.code in NOT_ALLOWED:
        return HTTPStatus.FORBIDDEN
    return _STATUSES.get(refusal.code, HTTPStatus.BAD_GATEWAY)


class Records:
    """Reads, writes and follows records. ``own_token``: what the console itself presents to gateways.

    Methods return None for paths that are not theirs. They raise WrongRequest, RecordsRefused, Refusal, Unavailable,
    StatusError. Raises ConfigError if a file of the settings is invalid.
    """

    def __init__(
        self, settings: RecordsSettings, client: KafkaClientSettings, gateways: Gateways, *, own_token: str
    ) -> None:
        self._settings = settings
        self._seconds = settings.read_ms / 1000
        self._access = BrokerAccess(
            settings.bootstrap, client, gateways, own_token=own_token, seconds=min(self._seconds, 30.0)
        )
        self._registry = Registry(settings)
        self._turns = trio.CapacityLimiter(settings.max_reads)
        self._shared = Turns(trio.CapacityLimiter(settings.max_fetches), trio.CapacityLimiter(_DECODING))

    async def read(self, path: str, query: str, token: str) -> dict[str, Any] | Response | None:
        """Answer a GET request of the user with this token."""
        values = dict(parse_qsl(query))
        if found := _RECORDS.fullmatch(path):
            return await self._search(name(found[1]), values, token)
        if found := _RECORD.fullmatch(path):
            return await self._show(name(found[1]), int(found[2]), int(found[3]), values, token)
        if found := _PART.fullmatch(path):
            return await self._download(name(found[1]), int(found[2]), int(found[3]), found[4], token)
        return None

    async def change(self, method: str, path: str, body: dict[str, Any], token: str) -> dict[str, Any] | None:
        """Write a record, or return the command that does, for a user who may."""
        found = (_RECORDS.fullmatch(path) or _COMMAND.fullmatch(path)) if method == "POST" else None
        if found is None:
            return None
        topic, record = name(found[1]), parse_record(body)
        self._check()
        if found.re is _COMMAND:
            return {"kcat": await self._produce_command(topic, record, token)}
        async with self._turn():
            with trio.move_on_after(self._seconds):
                async with await self._access.brokers(token) as brokers:
                    place, offset = await produce(brokers, topic, record, seconds=self._seconds)
                    return {"partition": place, "offset": str(offset)}
        raise Unavailable(f"no answer within {self._seconds:g} s; the record may have been stored")

    def tail(self, path: str, query: str, token: str, lives: Callable[[], bool]) -> Talk | None:
        """Return what sends a topic's records as they arrive, until ``lives`` is false."""
        found = _TAIL.fullmatch(path)
        if found is None:
            return None
        self._check()
        topic = name(found[1])
        values = {"start": "end", **dict(parse_qsl(query))}
        wanted = parse_query(values, most=self._settings.tail_rate, limit=_RATE)
        size = self._settings.tail_bytes
        # A fetch that waited for records would hold a turn that others need.
        limits = FetchLimits(size, size, timedelta(0))

        @asynccontextmanager
        async def reader(warn: Callable[[str], None]) -> AsyncIterator[TopicReader]:
            async with self._reader(topic, token, limits, warn, seconds=_TAIL_SECONDS) as opened:
                yield opened

        async def talk(send: Send) -> None:
            tail = Tail(wanted, self._sieve(wanted), reader, lives, largest=self._settings.decoded_bytes)
            await tail.run(send)

        return talk

    async def _search(self, topic: str, values: dict[str, str], token: str) -> dict[str, Any]:
        query = parse_query(values, most=self._settings.max_rows, limit=_ROWS)
        self._check()
        reading = Reading(query, self._sieve(query), self._settings)
        size = self._settings.fetch_bytes
        async with self._turn():
            with trio.move_on_after(self._seconds) as patience:
                async with self._reader(topic, token, FetchLimits(size, size), reading.faults.add) as reader:
                    await reading.run(reader)
        answer = reading.answer()
        if patience.cancelled_caught and not answer["end"]:
            raise Unavailable(f"no answer within {self._seconds:g} s")
        brokers = await self._shown_addresses(token)
        return {
            **answer,
            "in_time": not patience.cancelled_caught,
            "kcat": kcat.consume(brokers, self._access.protocol, topic, query, follow=False),
            "kcat_tail": kcat.consume(brokers, self._access.protocol, topic, query, follow=True),
            "registry": self._registry.used,
            "most_rate": self._settings.tail_rate,
            "most_rows": self._settings.max_rows,
        }

    async def _show(
        self, topic: str, partition: int, offset: int, values: dict[str, str], token: str
    ) -> dict[str, Any]:
        query = parse_query({**values, "start": "end"}, most=1, limit=1)
        found = await self._one(topic, partition, offset, token)
        brokers = await self._shown_addresses(token)
        this = replace(query, partition=partition, start=OFFSET, number=offset)
        command = kcat.consume(brokers, self._access.protocol, topic, this, follow=False)
        most = self._settings.record_bytes
        decoder = Decoder(self._registry, largest=most)
        with trio.move_on_after(self._seconds):
            await decoder.learn((found.record.key, found.record.value))
            async with self._shared.decoding:
                shown = await trio.to_thread.run_sync(
                    lambda: row(
                        found, decoder, key_form=query.key_form, value_form=query.value_form, most=most, pretty=True
                    )
                )
            return {**shown, "kcat": command}
        raise Unavailable(f"the record was not decoded within {self._seconds:g} s")

    async def _download(self, topic: str, partition: int, offset: int, part: str, token: str) -> Response:
        found = await self._one(topic, partition, offset, token)
        data = found.record.key if part == "key" else found.record.value
        if data is None:
            raise RecordsRefused(HTTPStatus.NOT_FOUND, f"the {part} is null")
        name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', topic)}-{partition}-{offset}.{part}"
        headers = (("content-disposition", f'attachment; filename="{name}"'), ("cache-control", "no-store"))
        return Response(data, "application/octet-stream", headers=headers)

    async def _one(self, topic: str, partition: int, offset: int, token: str) -> Found:
        """Return the record at an offset. Raises RecordsRefused if there is none."""
        self._check()
        missing = RecordsRefused(HTTPStatus.NOT_FOUND, f"{topic}-{partition} has no record at offset {offset}")
        if partition >= 2**31 or offset >= 2**63 - 1:
            raise missing
        async with self._turn():
            with trio.move_on_after(self._seconds):
                async with self._reader(topic, token, FetchLimits(1, 1), lambda _: None) as reader:
                    if partition not in await reader.open():
                        raise missing
                    async with self._shared.fetching:
                        for fetched in await reader.fetch({partition: offset}, [partition]):
                            async with self._shared.decoding:
                                found = await trio.to_thread.run_sync(self._first, fetched, offset)
                            if found is not None:
                                return found
                    raise missing
        raise Unavailable(f"no answer within {self._seconds:g} s")

    def _first(self, fetched: Fetched, offset: int) -> Found | None:
        largest = self._settings.decoded_bytes
        for piece in pieces(fetched.partition, fetched.batches, offset, offset + 1, largest=largest):
            if piece.faults:
                raise RecordsRefused(HTTPStatus.BAD_GATEWAY, piece.faults[0])
            if piece.records:
                return piece.records[0]
        return None

    async def _produce_command(self, topic: str, record: NewRecord, token: str) -> str:
        return kcat.produce(
            await self._shown_addresses(token),
            self._access.protocol,
            topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )

    async def _shown_addresses(self, token: str) -> list[str]:
        found = await self._access.addresses(token)
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found]

    def _check(self) -> None:
        if not self._settings.records:
            raise RecordsRefused(HTTPStatus.FORBIDDEN, "records are not shown; see KAFSCALE_CONSOLE_RECORDS")

    def _sieve(self, query: Query) -> Sieve:
        decoder = Decoder(self._registry, largest=self._settings.record_bytes)
        return Sieve(query, decoder, self._shared, row_bytes=self._settings.row_bytes)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        turn = object()
        try:
            self._turns.acquire_on_behalf_of_nowait(turn)
        except trio.WouldBlock:
            text = "too many reads at the same time; see KAFSCALE_CONSOLE_MAX_READS"
            raise RecordsRefused(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
        try:
            yield
        finally:
            self._turns.release_on_behalf_of(turn)

    @asynccontextmanager
    async def _reader(
        self,
        topic: str,
        token: str,
        limits: FetchLimits,
        warn: Callable[[str], None],
        seconds: float | None = None,
    ) -> AsyncIterator[TopicReader]:
        async with await self._access.brokers(token) as brokers:
            yield TopicReader(brokers, topic, seconds=seconds or self._seconds, warn=warn, limits=limits)
