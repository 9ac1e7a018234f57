"""Fetch sessions (KIP-227): the gateway keeps a client's partitions, so both sides send only changes.

A session begins with a full request of epoch 0, which contains all partitions of the client. Each later request has the
session's id and the next epoch. It contains the partitions that are new, have another offset, or are forgotten. The
response contains the partitions that have records, an error, or another high watermark or log start offset than
reported before. Partitions with records move to the end of the order in which the session is read, so that they do not
starve others.

Sessions are soft state of one gateway. If a session is gone or a request has an unexpected epoch, the response is an
error and the client begins a new session. A session that was unused for two minutes can be evicted for another one. If
there is no space, or a topic name is longer than valid names, the response to a full request has session id 0, and the
next request is full again.
Source of the rules: KIP-227 and the comments in Kafka's FetchRequest.json and FetchResponse.json.
"""

from collections.abc import Iterable
from itertools import groupby
from secrets import randbelow
from typing import Protocol

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka.fetch import NAMES_BY_ID_FROM, FetchPartition, FetchRequest, FetchResult, FetchTopic
from kafscale.kafka.fetch import FetchTopicResults as Results

_NO_SESSION = 0
_OPENS, _CLOSES = 0, -1
_LARGEST_INT32 = 2**31 - 1
_STALE_SECONDS = 120.0
"""As in Kafka (min.incremental.fetch.session.eviction.ms)."""

_LONGEST_NAME = 249
"""The maximum length of a topic name. Longer names are not kept, because only the number of partitions is limited."""

_Key = tuple[str, bytes, int]


class Visit(Protocol):
    """One request, with or without a session. ``topics`` are the topics that it reads, in this order."""

    topics: list[FetchTopic]

    def answer(self, results: list[Results]) -> tuple[int, list[Results]] | ErrorCode:
        """Return the session id and the results for the response, or the error of the whole request."""

    def withhold(self) -> tuple[int, ErrorCode]:
        """Return the session id and the error of a response without results. A session is kept, and none begins."""


class FetchSessions:
    """The sessions of one gateway: at most ``limit`` sessions, with at most ``partition_limit`` partitions in total."""

    def __init__(self, limit: int, partition_limit: int) -> None:
        self._limit = limit
        self._partition_limit = partition_limit
        # By id, the least recently used first.
        self._sessions: dict[int, _Session] = {}
        self.partitions = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def visit(self, request: FetchRequest, version: int) -> Visit | ErrorCode:
        """Return what ``request`` reads, or an error if its session cannot continue. Advances the session's epoch."""
        nameable = all(len(topic.name) <= _LONGEST_NAME for topic in request.topics)
        if request.session_epoch in (_OPENS, _CLOSES) or not nameable:
            self._remove(request.session_id)
            if request.session_epoch > _OPENS:
                return ErrorCode.fetch_session_id_not_found
            if request.session_epoch == _CLOSES or not nameable:
                return _Alone(request.topics)
            return _Opening(self, request.topics, version)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if request.session_epoch != session.epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.by_id != (version >= NAMES_BY_ID_FROM):
            return ErrorCode.fetch_session_topic_id_error
        session.epoch = _following(session.epoch)
        before = len(session.partitions)
        session.change(request)
        self.partitions += len(session.partitions) - before
        if not session.partitions:
            self._remove(session.id)
            return _Alone([])
        self._touch(session)
        if not self._room_for(0):
            self._remove(session.id)
            return ErrorCode.fetch_session_id_not_found
        return _Continuing(session)

    def open(self, partitions: "dict[_Key, _Kept]", *, by_id: bool) -> int:
        """Return the id of a new session with these partitions, or 0 if there is no space."""
        if not self._room_for(len(partitions), sessions=1):
            return _NO_SESSION
        session_id = _random_id()
        while session_id in self._sessions:
            session_id = _random_id()
        self._touch(_Session(session_id, partitions, by_id=by_id))
        self.partitions += len(partitions)
        return session_id

    def _room_for(self, partitions: int, sessions: int = 0) -> bool:
        """Evict stale sessions as needed, and return whether this many more partitions and sessions fit."""
        stale = trio.current_time() - _STALE_SECONDS
        while len(self) + sessions > self._limit or self.partitions + partitions > self._partition_limit:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or oldest.used > stale:
                return False
            self._remove(oldest.id)
            self.evicted += 1
        return True

    def _touch(self, session: "_Session") -> None:
        session.used = trio.current_time()
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)


class _Kept:
    """One partition of a session: what the client requested, and what was reported last."""

    __slots__ = ("high_watermark", "log_start_offset", "requested")

    def __init__(self, requested: FetchPartition) -> None:
        self.requested = requested
        self.high_watermark = self.log_start_offset = -1

    def is_news(self, result: FetchResult) -> bool:
        """Return whether ``result`` must be reported, and remember it as reported."""
        reported = (self.high_watermark, self.log_start_offset)
        # After an error, the next result is always reported.
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset
        changed = (result.high_watermark, result.log_start_offset) != reported
        return changed or bool(result.records) or bool(result.error_code)


class _Session:
    """``epoch`` is that of the next request. ``used`` is when the session was last used, in Trio's time."""

    __slots__ = ("by_id", "epoch", "id", "partitions", "used")

    def __init__(self, session_id: int, partitions: dict[_Key, _Kept], *, by_id: bool) -> None:
        self.id = session_id
        self.by_id = by_id
        self.partitions = partitions
        self.epoch = _following(_OPENS)
        self.used = 0.0

    def change(self, request: FetchRequest) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.name, topic.topic_id, partition.index)
                kept = self.partitions.get(key)
                if kept is None:
                    self.partitions[key] = _Kept(partition)
                else:
                    kept.requested = partition
        for key in request.forgotten:
            self.partitions.pop(key, None)


class _Alone:
    def __init__(self, topics: list[FetchTopic]) -> None:
        self.topics = topics

    def answer(self, results: list[Results]) -> tuple[int, list[Results]]:
        return _NO_SESSION, results

    def withhold(self) -> tuple[int, ErrorCode]:
        return _NO_SESSION, ErrorCode.none


class _Opening:
    def __init__(self, sessions: FetchSessions, topics: list[FetchTopic], version: int) -> None:
        self.topics = topics
        self._sessions = sessions
        self._by_id = version >= NAMES_BY_ID_FROM

    def answer(self, results: list[Results]) -> tuple[int, list[Results]]:
        partitions = {
            (topic.name, topic.topic_id, requested.index): _Kept(requested)
            for topic in self.topics
            for requested in topic.partitions
        }
        for key, result in _flat(results):
            partitions[key].is_news(result)
        return self._sessions.open(partitions, by_id=self._by_id), results

    def withhold(self) -> tuple[int, ErrorCode]:
        return _NO_SESSION, ErrorCode.none


class _Continuing:
    def __init__(self, session: _Session) -> None:
        self._session = session
        self._epoch = session.epoch
        kept = ((key, each.requested) for key, each in session.partitions.items())
        self.topics = [
            FetchTopic(name, topic_id, [requested for _, requested in group])
            for (name, topic_id), group in groupby(kept, key=lambda one: one[0][:2])
        ]

    def withhold(self) -> tuple[int, ErrorCode]:
        session = self._session
        session.used = trio.current_time()
        if session.epoch != self._epoch:
            return session.id, ErrorCode.invalid_fetch_session_epoch
        return session.id, ErrorCode.none

    def answer(self, results: list[Results]) -> tuple[int, list[Results]] | ErrorCode:
        session = self._session
        if session.epoch != self._epoch:
            # The next request arrived before this one was answered, so the client's requests are out of step.
            return ErrorCode.invalid_fetch_session_epoch
        session.used = trio.current_time()
        reported = []
        for key, result in _flat(results):
            if session.partitions[key].is_news(result):
                reported.append((key, result))
                if result.records:
                    session.partitions[key] = session.partitions.pop(key)
        return session.id, [
            Results(name, topic_id, [result for _, result in of_topic])
            for (name, topic_id), of_topic in groupby(reported, key=lambda one: one[0][:2])
        ]


def _flat(results: list[Results]) -> Iterable[tuple[_Key, FetchResult]]:
    return (((topic.name, topic.topic_id, result.index), result) for topic in results for result in topic.results)


def _following(epoch: int) -> int:
    return epoch + 1 if epoch < _LARGEST_INT32 else 1


def _random_id() -> int:
    """A random id, so that ids from before a restart, or from another gateway, do not match a session."""
    return 1 + randbelow(_LARGEST_INT32)
