"""`kafscale produce` and `kafscale consume` with a gateway, and the formats of records."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import click
import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.kafka_client import requests
from kafscale.kafka_client.connection import Connection
from kafscale.metadata.topic_values import TopicInfo
from kafscale.records.batch import CONTROL_BIT, pack_header, peek, seal
from kafscale.records.record import Record
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import PartitionOffset
from kafscale_tools.cli import records
from kafscale_tools.cli.exits import Exit
from kafscale_tools.cli.kafka.formats import Format, unescaped
from tests.servers.ports import free_ports
from tests.support.gateway.admin_server import AdminServer, admin_server
from tests.support.gateway.asking import produce
from tests.support.gateway.harness import NOW_MS, batch

ALL = "%t %p %o %T [%k] [%s] %K %S {%h}\\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminServer]:
    # The gateway's clock.
    monkeypatch.setattr(records, "wall_clock_ms", lambda: NOW_MS)
    with admin_server() as server:
        yield server


def _topic(server: AdminServer, partitions: int = 1) -> TopicInfo:
    found: TopicInfo = server.there(server.harness.topic, "t", partitions)
    return found


def _produce(server: AdminServer, *batches: bytes) -> None:
    """Produce as another client."""

    async def write() -> None:
        connection = await server.harness.connect()
        for each in batches:
            await produce(connection, each)

    server.there(write)


def _out(server: AdminServer, *arguments: str) -> bytes:
    found = server.run("consume", "t", *arguments)
    assert found.exit_code == 0, found.output
    return found.stdout_bytes


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%t-%p@%o", b"t-3@7"),
        ("%T", b"1700000000000"),
        ("%k=%s", b"\x00\xff=NULL"),
        ("%K %S", b"2 -1"),
        ("%h", b"a=1,b=NULL,c="),
        ("100%%\\t\\x41\\0\\\\\\r\\n", b"100%\tA\0\\\r\n"),
        ("\u00e9", "\u00e9".encode()),
        ("", b""),
    ],
)
def test_records_are_printed_in_the_format(form: str, shown: bytes) -> None:
    record = Record(7, NOW_MS, b"\x00\xff", None, (("a", b"1"), ("b", None), ("c", b"")))
    assert Format.parse(form, b"NULL").of("t", 3, record) == shown


@pytest.mark.parametrize("form", ["%", "%x", "a%", "\\q", "\\xZZ"])
def test_an_invalid_format_is_refused(form: str) -> None:
    with pytest.raises(click.BadParameter):
        Format.parse(form, b"")


def test_every_byte_can_be_a_delimiter() -> None:
    assert b"".join(unescaped(f"\\x{number:02x}") for number in range(256)) == bytes(range(256))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_byte_is_read_as_it_was_written(server: AdminServer, codec: str) -> None:
    _topic(server)
    values = [bytes(byte for byte in range(256) if byte != 0x0A), b"", b"\xff\xfe", b"a" * 100_000]
    # The last line may lack its newline.
    done = server.run("produce", "t", "-z", codec, input=b"\n".join(values) + b"\nlast")
    assert (done.exit_code, done.output) == (0, "")
    assert _out(server) == b"\n".join([*values, b"last", b""])


def test_keys_headers_and_null_differ_from_empty_values(server: AdminServer) -> None:
    _topic(server)
    lines = b"k::v;::v;k::;no key;::;;"
    given = ("-K", "::", "-D", ";", "-H", "a=1", "-H", "b=")
    assert server.run("produce", "t", *given, input=lines).exit_code == 0
    assert server.run("produce", "t", *given, "-Z", input=lines).exit_code == 0
    shown = [b"[k] [v]", b"[] [v]", b"[k] []", b"[NULL] [no key]", b"[] []", b"[NULL] []"]
    nulls = [b"[k] [v]", b"[NULL] [v]", b"[k] [NULL]", b"[NULL] [no key]", b"[NULL] [NULL]", b"[NULL] [NULL]"]
    form = ("-f", "[%k] [%s] {%h}\\n")
    assert _out(server, *form, "-Z").splitlines() == [each + b" {a=1,b=}" for each in shown + nulls]
    assert _out(server, *form).splitlines()[8] == b"[k] [] {a=1,b=}"
    assert _out(server, "-f", "%K,%S ") == b"1,1 0,1 1,0 -1,6 0,0 -1,0 1,1 -1,1 1,-1 -1,6 -1,-1 -1,-1 "


def test_consuming_starts_and_ends_where_requested(server: AdminServer) -> None:
    topic = _topic(server)
    _produce(server, batch(*(b"%d" % number for number in range(5))), batch(b"5", b"6"))
    form = ("-f", "%o ")
    assert _out(server, *form) == b"0 1 2 3 4 5 6 "
    assert _out(server, *form, "--from", "offset=3") == b"3 4 5 6 "
    assert _out(server, *form, "--from", "latest") == b""
    assert _out(server, *form, "--from", "offset=7") == b""
    assert _out(server, *form, "-c", "2", "--from", "offset=4", "--follow") == b"4 5 "
    storage = server.harness.storage
    storage.offsets = {1000: PartitionOffset(offset=6, timestamp=1000), 0: PartitionOffset(offset=1, timestamp=0)}
    assert _out(server, *form, "--from", "time=1970-01-01T00:00:01") == b"6 "
    assert _out(server, *form, "--from", "time=1960-01-01") == b"1 2 3 4 5 6 "
    storage.offsets = {1000: PartitionOffset(offset=-1, timestamp=-1)}
    assert _out(server, *form, "--from", "time=1000") == b""
    storage.partition(common_pb2.PartitionRef(topic="t", topic_id=topic.id, partition=0)).log_start = 5
    assert _out(server, "-f", ALL) == b"".join(
        b"t 0 %d %d [] [%d] -1 1 {}\n" % (offset, NOW_MS, offset) for offset in (5, 6)
    )
    before = server.run("consume", "t", "--from", "offset=4")
    assert (before.exit_code, before.output) == (Exit.WRONG, "Error: t-0 has no offset 4: its log is from 5 to 7.\n")


def test_records_with_keys_go_to_their_partition_and_others_alternate(server: AdminServer) -> None:
    _topic(server, 3)
    lines = b"".join(b"key-%d:%d\n" % (number % 5, number) for number in range(20))
    for _ in range(2):
        assert server.run("produce", "t", "-K", ":", input=lines).exit_code == 0
    rows = [line.split() for line in _out(server, "-f", "%p %k %s\\n").splitlines()]
    assert len(rows) == 40
    assert len({(place, key) for place, key, _ in rows}) == 5
    for key in {key for _, key, _ in rows}:
        values = [int(value) for _, found, value in rows if found == key]
        assert values == sorted(values[:4]) * 2
    assert server.run("produce", "t", "-p", "2", input="here").exit_code == 0
    assert _out(server, "-p", "2").splitlines()[-1] == b"here"


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_errors_end_the_command_with_a_status(server: AdminServer, command: str) -> None:
    missing = server.run(command, "t", input="a")
    assert (missing.exit_code, missing.stderr) == (Exit.NOT_FOUND, "Error: The topic t does not exist.\n")
    _topic(server)
    other = server.run(command, "t", "-p", "1", input="a")
    assert (other.exit_code, other.stderr) == (Exit.NOT_FOUND, "Error: The topic t has no partition 1.\n")
    for text in ("nonsense", "", ":9092", "a:0", "a:1,,b:2"):
        assert server.run(command, "t", "-b", text).exit_code == Exit.WRONG
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    silent = server.run(command, "t", "-b", nobody, "--timeout", "5", input="a")
    assert (silent.exit_code, nobody in silent.stderr) == (Exit.UNAVAILABLE, True)
    # One broker that answers is enough, and no Admin service is needed then.
    port = server.harness.listeners[0].port
    both = server.run(command, "t", "-b", f"{nobody},127.0.0.1:{port}", input="a", KAFSCALE_ADMIN_SERVER=nobody)
    assert both.exit_code == 0
    # This port speaks gRPC.
    assert server.run(command, "t", "-b", server.address, "--timeout", "1").exit_code == Exit.UNAVAILABLE


def test_wrong_options_are_refused(server: AdminServer) -> None:
    _topic(server)
    for arguments in (("--from", "shift=1"), ("--from", "noon"), ("-f", "%q"), ("-c", "0")):
        assert server.run("consume", "t", *arguments).exit_code == Exit.WRONG
    for arguments in (("-D", ""), ("-K", ""), ("-H", "a"), ("-z", "rar"), ("-K", "\\q")):
        assert server.run("produce", "t", *arguments, input="a").exit_code == Exit.WRONG
    assert server.harness.storage.appends == []


class _Lossy:
    """Loses replies of one API: requests are executed, but their replies do not arrive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, api_key: int, *, times: int) -> None:
        self.left = times
        ask = Connection.ask

        async def lossy(connection: Any, asked: int, body: bytes) -> bytes:
            answer = await ask(connection, asked, body)
            if asked == api_key and self.left:
                self.left -= 1
                raise Unavailable("the connection is lost")
            return answer

        monkeypatch.setattr(Connection, "ask", lossy)


def test_a_retried_batch_has_the_same_sequence_numbers(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _topic(server)
    _Lossy(monkeypatch, requests.PRODUCE, times=2)
    # More than one batch may hold, so there is a second one.
    done = server.run("produce", "t", input=b"a\n" + b"b" * 600_000 + b"\n")
    assert done.exit_code == 0, done.output
    headers = [peek(append.records) for request in server.harness.storage.appends for append in request.appends]
    assert {(each.producer_id, each.producer_epoch) for each in headers} == {(headers[0].producer_id, 0)}
    assert headers[0].producer_id >= 0
    sequences = [each.base_sequence for each in headers]
    assert sequences[:3] == [0, 0, 0]
    assert [each for each in sequences if each] == [headers[0].record_count] * (len(sequences) - 3)
    assert headers[0] == headers[1] == headers[2]


def test_a_moved_partition_is_written_at_its_new_broker(server: AdminServer) -> None:
    topic = _topic(server)
    server.harness.storage.refuse[topic.id, 0] = [common_pb2.UNAVAILABLE]
    done = server.run("produce", "t", input="a\nb\n")
    assert (done.exit_code, _out(server)) == (0, b"a\nb\n")


def test_a_record_too_large_is_refused(server: AdminServer) -> None:
    server.there(lambda: server.harness.topic("t", max_message_bytes="1000"))
    done = server.run("produce", "t", input=b"a" * 2000)
    assert (done.exit_code, done.stderr[:29]) == (Exit.FAILED, "Error: t-0: MESSAGE_TOO_LARGE")


def test_an_unreachable_broker_is_retried(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _topic(server)
    _produce(server, batch(b"0", b"1"))
    lossy = _Lossy(monkeypatch, requests.FETCH, times=2)
    assert _out(server) == b"0\n1\n"
    lossy.left = 1_000_000
    ended = server.run("consume", "t", "--follow", "--timeout", "1")
    assert (ended.exit_code, ended.stdout) == (Exit.UNAVAILABLE, "")
    assert ended.stderr == "Error: not done within 1 s: the connection is lost\n"
    lossy.left = 0
    _Lossy(monkeypatch, requests.PRODUCE, times=1_000_000)
    assert server.run("produce", "t", "--timeout", "1", input="a").exit_code == Exit.UNAVAILABLE


def test_control_batches_are_skipped_but_damaged_ones_are_not(server: AdminServer) -> None:
    topic = _topic(server)
    header = peek(plain := batch(b"control"))
    control = bytearray(pack_header(header._replace(attributes=CONTROL_BIT)) + plain[61:])
    seal(control)

    async def append(records: bytes) -> None:
        storage = server.harness.storage
        partition = storage.partition(common_pb2.PartitionRef(topic="t", topic_id=topic.id, partition=0))
        partition.append(records)
        storage.commit(partition)

    for each in (batch(b"0"), bytes(control), batch(b"2")):
        server.there(append, each)
    assert _out(server, "-f", "%o:%s ") == b"0:0 2:2 "
    damaged = bytearray(batch(b"3"))
    damaged[-2] ^= 1
    server.there(append, bytes(damaged))
    found = server.run("consume", "t")
    assert (found.exit_code, found.stdout) == (Exit.FAILED, "0\n2\n")
    assert "CRC" in found.stderr


@pytest.mark.parametrize(("options", "status"), [(("--follow",), 0), ((), Exit.FAILED)])
def test_sigint_ends_consume(server: AdminServer, options: tuple[str, ...], status: int) -> None:
    """The status is 0 if it follows the log, and the output ends with a complete record."""
    _topic(server)
    _produce(server, batch(b"0"))
    storage = server.harness.storage

    async def later() -> None:
        await produce(await server.harness.connect(), batch(b"1"))
        await storage.wait_until(lambda: storage.fetches[-1].fetches[0].offset == 2)
        os.kill(os.getpid(), signal.SIGINT)

    def fetched() -> None:
        storage.on_fetched = None
        if options:
            server.harness.nursery.start_soon(later)
        else:
            storage.fetch_gate = trio.Event()
            os.kill(os.getpid(), signal.SIGINT)

    storage.on_fetched = fetched
    found = server.run("consume", "t", *options)
    if options:
        assert (found.exit_code, found.stdout) == (status, "0\n1\n")
    else:
        assert found.exit_code == status
