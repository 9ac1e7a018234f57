"""Which calls over gRPC are allowed if ACLs are enforced: by token, by certificate, and to nobody else."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trio
import trustme
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from structlog.testing import capture_logs

from kafscale import paths
from kafscale.audit import AuditLog
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topics import TopicCatalog
from kafscale.process.token_keys import TokenKeys
from kafscale.process.tokens import TokenVerifier
from kafscale.rpc import generated
from kafscale.rpc.access import Caller, CallGuard, Needs
from kafscale.rpc.admin import SERVICE as ADMIN
from kafscale.rpc.client import Channel, Metadata
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import bind, method
from kafscale.rpc.peer_health import PeerHealth
from kafscale.rpc.server import RpcServer
from kafscale.rpc.tls import RpcTls
from kafscale.security.acls import Acl, AclSet, Operation, PatternType, Permission, ResourceType
from kafscale.security.principals import NameRules, user
from kafscale.security.tokens import LARGEST_TOKEN, KeySet, TokenRules
from kafscale.v1 import admin_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale.v1.common_pb2 import PartitionRef
from services.gateway.admin.needs import NEEDS as ADMIN_NEEDS
from services.storage.needs import needs as storage_needs
from tests.support.carrier import TIMEOUT, Carrier
from tests.support.issuer import AUDIENCE, ISSUER, Issuer

AUDIT = AuditLog("all", 1000, clock=time.monotonic)
TOKEN = "a-token-of-22-characters"
NOW = 1_000_000.0
SERVICES = (generated.SEGMENT_STORAGE, generated.INDEXER, generated.GROUP_COORDINATOR, generated.PROCESS, ADMIN)
SCAN = method(generated.SEGMENT_STORAGE, "Scan", pb.ScanRequest, pb.ScanPiece)
FETCH = method(generated.SEGMENT_STORAGE, "Fetch", pb.FetchRequest, pb.FetchReply)
DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def _catalog() -> TopicCatalog:
    return TopicCatalog(MemoryMetadataStore(), "ns")


def _may(name: str, operation: Operation, type_: ResourceType, resource: str, host: str = "*") -> Acl:
    return Acl(type_, PatternType.LITERAL, resource, f"User:{name}", host, operation, Permission.ALLOW)


ACLS = AclSet(
    [
        _may("CN=reader", Operation.READ, ResourceType.TOPIC, "t"),
        _may("ann", Operation.READ, ResourceType.TOPIC, "u"),
        _may("CN=elsewhere", Operation.READ, ResourceType.TOPIC, "t", host="10.9.9.9"),
        _may("CN=service", Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"),
    ],
    super_users={user("CN=root")},
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a certificate for 127.0.0.1, and certificates of users."""
    made, ca = tmp_path_factory.mktemp("access"), trustme.CA()
    ca.cert_pem.write_to_path(made / "ca.pem")
    for name in ("127.0.0.1", "reader", "elsewhere", "service", "root"):
        issued = ca.issue_cert(name, common_name=name)
        issued.cert_chain_pems[0].write_to_path(made / f"{name}.pem")
        issued.private_key_pem.write_to_path(made / f"{name}.key")
    return made


def _tls(directory: Path, name: str, *, required: bool = False) -> RpcTls:
    return RpcTls(
        ca_file=directory / "ca.pem",
        cert_file=directory / f"{name}.pem",
        key_file=directory / f"{name}.key",
        require_client_cert=required,
    )


def _verifier() -> TokenVerifier:
    """A verifier whose clock stands at NOW, and whose keys are known."""

    async def nothing() -> bytes:
        raise AssertionError

    keys = TokenKeys(nothing, 3600)
    keys.current = KeySet.parse(Issuer().document)
    return TokenVerifier(TokenRules(issuer=ISSUER, audiences=(AUDIENCE,)), keys, lambda: NOW)


def _bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


@asynccontextmanager
async def _guarded(directory: Path, name: str, tokens: TokenVerifier | None = None) -> AsyncIterator[Channel]:
    """A storage service with a guard, called with the certificate of ``name``; empty: without TLS."""
    rules = NameRules("RULE:.*(CN=[^,]+).*/$1/")
    verify = tokens.verify if tokens else None
    guard = CallGuard(lambda: ACLS, rules, storage_needs(_catalog()), audit=AUDIT, token=TOKEN, verify=verify)
    tls = _tls(directory, "127.0.0.1", required=True) if name else None
    async with trio.open_nursery() as nursery:
        server = RpcServer([bind(generated.SEGMENT_STORAGE, Carrier(), guard=guard)], tls=tls)
        port = await nursery.start(server.run, "127.0.0.1:0", trio.Event())
        client = _tls(directory, name) if name else None
        async with Channel(f"127.0.0.1:{port}", error_of=StatusError, tls=client) as channel:
            yield channel
        nursery.cancel_scope.cancel()


async def _outcome(channel: Channel, metadata: Metadata = ()) -> list[grpc.StatusCode | None]:
    """What becomes of a scan of the topic t, a scan of the topic u, and a call that only services make."""
    found: list[grpc.StatusCode | None] = []
    for topic in ("t", "u"):
        try:
            request = pb.ScanRequest(partition=PartitionRef(topic=topic))
            async with channel.stream(SCAN, request, metadata=metadata) as stream:
                await stream.receive()
            found.append(None)
        except StatusError as error:
            found.append(error.code if error.code in (DENIED, UNAUTHENTICATED) else None)
    try:
        await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT, metadata=metadata)
        found.append(None)
    except StatusError as error:
        found.append(error.code)
    return found


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("root", [None, None, None]),
        ("reader", [None, DENIED, DENIED]),
        ("elsewhere", [DENIED, DENIED, DENIED]),
        ("service", [DENIED, DENIED, None]),
        ("", [DENIED, DENIED, DENIED]),
    ],
)
async def test_a_certificate_says_who_calls(directory: Path, name: str, outcome: list[grpc.StatusCode | None]) -> None:
    async with _guarded(directory, name) as channel:
        assert await _outcome(channel) == outcome
        # Probes need no certificate of a user.
        assert await PeerHealth(channel).serving(generated.SEGMENT_STORAGE.full_name, timeout=TIMEOUT)


@pytest.mark.parametrize(("token", "outcome"), [(TOKEN, None), (TOKEN[1:], UNAUTHENTICATED)])
async def test_a_token_that_may_do_everything(directory: Path, token: str, outcome: grpc.StatusCode | None) -> None:
    async with _guarded(directory, "") as channel:
        assert (await _outcome(channel, _bearer(token)))[2] == outcome


@pytest.mark.parametrize("certificate", ["root", "reader", ""])
async def test_a_token_of_the_issuer_says_who_calls_whatever_the_certificate(directory: Path, certificate: str) -> None:
    async with _guarded(directory, certificate, _verifier()) as channel:
        assert await _outcome(channel, _bearer(Issuer().token(NOW + 60))) == [DENIED, None, DENIED]
        assert await _outcome(channel, _bearer(TOKEN)) == [None, None, None]


async def test_a_token_of_the_largest_size_is_accepted(directory: Path) -> None:
    def token(padding: int) -> str:
        return Issuer().token(NOW + 60, padding="x" * padding)

    # The padding is encoded as base64.
    longest = token((LARGEST_TOKEN - len(token(0))) // 4 * 3)
    assert LARGEST_TOKEN - 4 < len(longest) <= LARGEST_TOKEN
    async with _guarded(directory, "", _verifier()) as channel:
        for _ in range(20):
            assert (await _outcome(channel, _bearer(longest)))[1] is None
        assert (await _outcome(channel, _bearer(token(LARGEST_TOKEN * 3 // 4))))[1] == UNAUTHENTICATED


@pytest.mark.parametrize(
    ("token", "verified", "reason"),
    [
        (Issuer().token(NOW - 60), True, "the token has expired"),
        (Issuer().token(NOW + 60, aud="another"), True, "the token is for another audience"),
        (TOKEN[1:], True, "the token is not a valid JSON Web Token"),
        (Issuer().token(NOW + 60), False, "the token is wrong"),
    ],
)
async def test_a_refused_token_is_not_shown(directory: Path, token: str, verified: bool, reason: str) -> None:
    # The certificate alone would be enough.
    async with _guarded(directory, "root", _verifier() if verified else None) as channel:
        with capture_logs() as logged, pytest.raises(StatusError, match=reason) as refused:
            await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT, metadata=_bearer(token))
    assert refused.value.code == UNAUTHENTICATED
    line = {"event": "authentication failed", "host": "127.0.0.1", "method": "Fetch", "reason": reason}
    assert [found for found in logged if line.items() <= found.items()]
    shown = repr(refused.value) + repr(logged)
    assert not [part for part in token.split(".") if part in shown]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_nobody_may_call_anything_without_a_credential(service: ServiceDescriptor) -> None:
    tables: dict[ServiceDescriptor, Needs] = {ADMIN: ADMIN_NEEDS, generated.SEGMENT_STORAGE: storage_needs(_catalog())}
    table = tables.get(service, {})
    assert set(table) <= set(service.methods_by_name)
    guard = CallGuard(lambda: ACLS, NameRules(), table, audit=AUDIT)
    for name, described in service.methods_by_name.items():
        request = GetMessageClass(described.input_type)()
        with pytest.raises(StatusError, match=r"User:ANONYMOUS needs"):
            await guard.check(name, request, Caller("127.0.0.1", b"", ""))


def test_every_admin_method_is_in_the_table() -> None:
    assert set(ADMIN_NEEDS) == set(ADMIN.methods_by_name)


async def test_a_log_is_not_read_by_the_id_of_another_topic(nursery: trio.Nursery) -> None:
    catalog = _catalog()
    await nursery.start(catalog.run)
    secret = await catalog.create("secret", 1, {}, now_ms=0, topic_id=bytes(range(16)))
    acls = AclSet([_may("ANONYMOUS", Operation.READ, ResourceType.TOPIC, "t")])
    guard = CallGuard(lambda: acls, NameRules(), storage_needs(catalog), audit=AUDIT)
    caller = Caller("127.0.0.1", b"", "")
    await guard.check("Scan", pb.ScanRequest(partition=PartitionRef(topic="t", topic_id=bytes(16))), caller)
    with pytest.raises(StatusError):
        await guard.check("Scan", pb.ScanRequest(partition=PartitionRef(topic="t", topic_id=secret.id)), caller)
    scans = [pb.PartitionScan(partition=PartitionRef(topic=name)) for name in ("t", "u")]
    with pytest.raises(StatusError):
        await guard.check("PlanScan", pb.PlanScanRequest(scans=scans), caller)
    nursery.cancel_scope.cancel()


async def _allowed(guard: CallGuard, name: str, request: object) -> bool:
    try:
        await guard.check(name, request, Caller("127.0.0.1", b"", ""))
    except StatusError as error:
        return error.code is not DENIED
    return True


def _admin_guard(*acls: tuple[Operation, ResourceType, str]) -> CallGuard:
    allowed = AclSet([_may("ANONYMOUS", *each) for each in acls])
    return CallGuard(lambda: allowed, NameRules(), ADMIN_NEEDS, audit=AUDIT)


async def test_offsets_are_reset_only_in_topics_that_the_caller_may_read() -> None:
    reader = _admin_guard((Operation.READ, ResourceType.GROUP, "g"), (Operation.READ, ResourceType.TOPIC, "t"))
    admin = _admin_guard((Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster"))
    only_topic = _admin_guard((Operation.READ, ResourceType.TOPIC, "t"))

    def reset(*topics: str) -> admin_pb2.ResetOffsetsRequest:
        return admin_pb2.ResetOffsetsRequest(group="g", topics=[admin_pb2.ResetTopic(topic=each) for each in topics])

    assert await _allowed(reader, "ResetOffsets", reset("t"))
    assert not await _allowed(reader, "ResetOffsets", reset("t", "u"))
    assert not await _allowed(only_topic, "ResetOffsets", reset("t"))
    # All topics of the group, which nobody knows yet.
    assert not await _allowed(reader, "ResetOffsets", reset())
    assert await _allowed(admin, "ResetOffsets", reset())


async def test_a_group_is_described_with_its_topics_and_a_topic_with_its_configs() -> None:
    group = (Operation.DESCRIBE, ResourceType.GROUP, "g")
    cluster = (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    topic = (Operation.DESCRIBE, ResourceType.TOPIC, "t")
    configs = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t")
    for name, request, needed in (
        ("DescribeConsumerGroup", admin_pb2.DescribeConsumerGroupRequest(group="g"), (group, cluster)),
        ("DescribeTopic", admin_pb2.DescribeTopicRequest(name="t"), (topic, configs)),
    ):
        assert await _allowed(_admin_guard(*needed), name, request)
        for one in needed:
            assert not await _allowed(_admin_guard(one), name, request)


async def test_a_sink_is_written_only_by_who_may_write_its_transactional_id() -> None:
    sink = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "job")
    topic = (Operation.WRITE, ResourceType.TOPIC, "t")

    def guard(*acls: tuple[Operation, ResourceType, str]) -> CallGuard:
        allowed = AclSet([_may("ANONYMOUS", *each) for each in acls])
        return CallGuard(lambda: allowed, NameRules(), storage_needs(_catalog()), audit=AUDIT)

    def discard(*sinks: str) -> pb.DiscardStagesRequest:
        return pb.DiscardStagesRequest(keys=[str(paths.StageKey("ns", each, 3, 1, "token")) for each in sinks])

    partition = PartitionRef(topic="t", topic_id=bytes(16))
    stage = pb.Stage(partition=partition)
    both, only_sink, only_topic = guard(sink, topic), guard(sink), guard(topic)
    for request in (
        pb.StageRequest(sink="job", partition=partition),
        pb.CommitSinkRequest(sink="job", stages=[stage]),
    ):
        name = request.DESCRIPTOR.name.removesuffix("Request")
        assert await _allowed(both, name, request)
        assert not await _allowed(only_sink, name, request)
        assert not await _allowed(only_topic, name, request)
    # An epoch without stages names no topic, but the same epoch of the job would count as a repetition of it.
    assert await _allowed(only_sink, "CommitSink", pb.CommitSinkRequest(sink="job"))
    assert not await _allowed(only_topic, "CommitSink", pb.CommitSinkRequest(sink="job"))
    assert not await _allowed(both, "CommitSink", pb.CommitSinkRequest(sink="other"))
    assert await _allowed(both, "DiscardStages", discard("job"))
    assert not await _allowed(both, "DiscardStages", discard("job", "other"))
    assert not await _allowed(only_topic, "DiscardStages", discard("job"))
