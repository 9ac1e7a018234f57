from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class TotalsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProcessTotals(_message.Message):
    __slots__ = ("process", "uptime_ms", "produced_records", "produced_bytes", "fetched_bytes", "scanned_bytes", "puts", "gets", "lists", "deletes", "stored_bytes", "read_bytes")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCANNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PUTS_FIELD_NUMBER: _ClassVar[int]
    GETS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    process: str
    uptime_ms: int
    produced_records: int
    produced_bytes: int
    fetched_bytes: int
    scanned_bytes: int
    puts: int
    gets: int
    lists: int
    deletes: int
    stored_bytes: int
    read_bytes: int
    def __init__(self, process: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., produced_records: _Optional[int] = ..., produced_bytes: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., scanned_bytes: _Optional[int] = ..., puts: _Optional[int] = ..., gets: _Optional[int] = ..., lists: _Optional[int] = ..., deletes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., read_bytes: _Optional[int] = ...) -> None: ...
