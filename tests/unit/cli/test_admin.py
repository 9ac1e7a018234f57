"""The commands that ask a cluster: their output, refusals and exit statuses."""

import json
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.topic_values import NEW_CLUSTER_STATE_FORMAT, ClusterInfo
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import IntakeRegister
from kafscale_tools.cli.admin.group import reset_to
from kafscale_tools.cli.admin.output import plain
from kafscale_tools.cli.exits import Exit
from kafscale_tools.cli.main import main
from tests.support.gateway.admin_server import AdminServer, admin_server
from tests.support.gateway.assignments import assignment
from tests.support.gateway.group_asking import commit, stable
from tests.support.gateway.harness import NAMESPACE, Harness

TOKEN = "the-token-of-the-operators"


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


async def _log(harness: Harness, name: str, end: int) -> None:
    """Create a topic with a partition of this many records."""
    topic = await harness.topic(name)
    harness.storage.partition(PartitionRef(topic=name, topic_id=topic.id, partition=0)).high_watermark = end


async def _commit(harness: Harness, offset: int) -> None:
    await commit(await harness.connect(), {"t": {0: (offset, "")}})


async def _join(harness: Harness) -> None:
    await stable(await harness.connect(), assignment=assignment(t=(0,)))


def test_the_cluster_is_listed(server: AdminServer) -> None:
    server.there(server.harness.topic, "t", 2)
    shown = server.run("cluster")
    assert shown.exit_code == 0
    first, state_format, _, heads, *rows = shown.output.splitlines()
    assert first.endswith("namespace test: 1 topic, 2 partitions, 2 without an owner")
    assert state_format.startswith(f"State format {NEW_CLUSTER_STATE_FORMAT}")
    assert heads.split() == ["SERVICE", "ID", "ADDRESS", "VERSION", "STARTED", "HEALTH", "DETAILS"]
    coordinator, gateway, storage = rows
    assert "coordinator:9096" in coordinator
    assert coordinator.endswith("ready   owns 64 of 64 group shards")
    assert gateway.split()[:2] == ["gateway", "0"]
    assert f"leads 2 partitions; PLAINTEXT://127.0.0.1:{server.harness.listeners[0].port}" in gateway
    assert storage.endswith("owns 0 partitions, no intake")
    reply = json.loads(server.run("cluster", "-o", "json").output)
    assert [each["health"] for each in reply["members"]] == ["READY"] * 3
    assert [each["node_id"] for each in reply["members"]] == [None, 0, None]


def test_an_upgrade_is_finalized(server: AdminServer) -> None:
    server.there(server.harness.metadata.txn, (), [Put(paths.cluster_key(NAMESPACE), ClusterInfo("c", 0).value())])
    older = server.run("finalize-upgrade", "--yes")
    assert older.exit_code == Exit.REFUSED
    assert "do not know state format 3: storage:9095 (run storage, version unknown)" in older.output
    server.there(partial(server.harness.cluster.add, "storage", server.harness.storage, state_format=3))
    checked = server.run("finalize-upgrade", "--dry-run")
    assert (checked.output, checked.exit_code) == ("the state format can be raised from 1 to 3\n", 0)
    kept = server.run("finalize-upgrade", input="n\n")
    assert kept.exit_code == Exit.FAILED
    assert "State format 1, logs are not compacted" in server.run("cluster").output
    raised = server.run("finalize-upgrade", input="y\n").output.splitlines()
    # The gateway, which runs in this process, logs in between.
    assert (raised[0], raised[-1]) == (
        "Raise the state format to 3? There is no way back to earlier releases. [y/N]: y",
        "state format raised from 1 to 3; now restart the storage instances one after the other",
    )
    again = server.run("finalize-upgrade", "-o", "json")
    assert json.loads(again.output) == {"before": 3, "state_format": 3}
    assert server.run("finalize-upgrade").output == "the state format is 3 already\n"
    shown = server.run("cluster").output.splitlines()
    assert shown[1] == "State format 3; an earlier one in 1 storage instance until restarted"
    register = IntakeRegister(format=1, intake=True, state_format=3).SerializeToString()
    put = Put(paths.intake_register_key(NAMESPACE, "storage"), register)
    server.there(server.harness.metadata.txn, (), [put])
    shown = server.run("cluster").output.splitlines()
    assert shown[1] == "State format 3"
    assert shown[-1].endswith("owns 0 partitions, has an intake")


def test_topics_are_created_altered_and_deleted(server: AdminServer) -> None:
    made = server.run("topic", "create", "t", "--partitions", "2", "--config", "retention.ms=1000")
    assert (made.output, made.exit_code) == ("topic t created with 2 partitions\n", 0)
    checked = server.run("topic", "create", "u", "--dry-run")
    assert checked.output == "topic u can be created with 1 partition\n"
    heads, row = server.run("topic", "list").output.splitlines()
    assert heads.split() == ["NAME", "PARTITIONS", "CREATED", "CONFIGS"]
    assert (row.split()[:2], row.split()[-1]) == (["t", "2"], "retention.ms=1000")
    altered = server.run(
        "topic", "alter", "t", "--partitions", "3", "--config", "flush.ms=7", "--unset", "retention.ms"
    )
    assert altered.output == "topic t has 3 partitions\nconfigs of topic t changed\n"
    described = server.run("topic", "describe", "t").output.splitlines()
    assert [line.split() for line in described[3:5]] == [["partitions", "3"], ["configs", "flush.ms=7"]]
    assert [line.split()[:2] for line in described[7:]] == [["t", "0"], ["t", "1"], ["t", "2"]]
    topic = json.loads(server.run("topic", "describe", "t", "-o", "json").output)["topic"]
    assert (topic["partitions"], topic["configs"], topic["deleting"]) == (3, {"flush.ms": "7"}, False)
    kept = server.run("topic", "delete", "t", input="n\n")
    assert kept.exit_code == Exit.FAILED
    deleted = server.run("topic", "delete", "t", input="y\n")
    assert deleted.output.splitlines() == ["Delete topic t with all its records? [y/N]: y", "topic t deleted"]
    assert "t (being deleted)" in server.run("topic", "list").output


def test_a_topic_is_altered_completely_or_not_at_all(server: AdminServer) -> None:
    server.there(server.harness.topic, "t")
    refused = server.run("topic", "alter", "t", "--partitions", "2", "--config", "no.such=9")
    assert refused.exit_code == Exit.WRONG
    refused = server.run("topic", "alter", "t", "--partitions", "1", "--config", "flush.ms=9")
    assert refused.exit_code == Exit.WRONG
    (topic,) = server.harness.catalog.view.by_name.values()
    assert (topic.partitions, topic.configs) == (1, {})


@pytest.mark.parametrize(
    "command",
    [
        "group reset g --to offset=99999999999999999999",
        "group reset g --to shift=-99999999999999999999",
        "group reset g --to time=99999999999999999999",
        "flush t --partition 5000000000",
        "topic create t --partitions 3000000000",
        "topic alter t --partitions 3000000000",
        "segment list t 3000000000",
        "segment list t 0 --limit 5000000000",
        "segment list t 0 --from 99999999999999999999",
    ],
)
def test_numbers_out_of_range_are_wrong(server: AdminServer, command: str) -> None:
    assert server.run(*command.split()).exit_code == Exit.WRONG


def test_partitions_are_listed_and_flushed(server: AdminServer) -> None:
    server.there(_log, server.harness, "t", 5000)
    heads, row = server.run("partition", "list", "t").output.splitlines()
    assert heads.split("  ")[0] == "TOPIC"
    assert row.split() == ["t", "0", "-", "-", "0", "5,000", "0", "0"]
    reply = json.loads(server.run("partition", "list", "-o", "json").output)
    assert reply["partitions"][0]["high_watermark"] == 5000
    assert server.run("flush", "t").output.splitlines()[1].split() == ["t", "0", "0"]
    assert server.run("flush", "--all").exit_code == server.run("flush", "t", "--partition", "0").exit_code == 0


def test_a_partly_failed_flush_is_reported(server: AdminServer) -> None:
    server.there(_log, server.harness, "t", 5)
    topic = server.harness.catalog.view.by_name["t"]
    server.harness.storage.moved[topic.id, 0] = ""
    failed = server.run("flush", "t")
    assert failed.exit_code == Exit.FAILED
    assert failed.stdout.splitlines()[1].split() == ["t", "0", "-", "NOT_OWNER"]
    assert failed.stderr == "Error: 1 of 1 partition may not be stored\n"


def test_configs_are_listed_and_changed(server: AdminServer) -> None:
    server.there(server.harness.topic, "t")
    assert server.run("config", "set", "t", "flush.ms=7", "--dry-run").output == "configs of topic t can be changed\n"
    assert _config(server) == ["flush.ms", "500", "default"]
    assert server.run("config", "set", "t", "flush.ms=7", "retention.ms=1").exit_code == 0
    assert _config(server) == ["flush.ms", "7", "topic"]
    assert server.run("config", "set", "t", "--unset", "flush.ms").exit_code == 0
    assert _config(server) == ["flush.ms", "500", "default"]


def _config(server: AdminServer) -> list[str]:
    lines = [line.split() for line in server.run("config", "describe", "t").output.splitlines()]
    return next(words for words in lines if words[0] == "flush.ms")


def test_groups_without_members_are_reset_and_deleted(server: AdminServer) -> None:
    server.there(_log, server.harness, "t", 1000)
    server.there(_commit, server.harness, 400)
    assert server.run("group", "list").output.splitlines()[1].split() == ["g", "Empty", "-", "coordinator:9096"]
    first, _, _, row = server.run("group", "describe", "g").output.splitlines()
    assert first == "Group g: Empty, type -, coordinator coordinator:9096; 600 records behind"
    assert row.split() == ["t", "0", "400", "1,000", "600", "-"]
    planned = server.run("group", "reset", "g", "--to", "shift=-100", "--dry-run")
    assert planned.output.splitlines()[1].split() == ["t", "0", "400", "300"]
    kept = server.run("group", "reset", "g", "--to", "latest", input="n\n")
    assert kept.exit_code == Exit.FAILED
    assert json.loads(server.run("group", "describe", "g", "-o", "json").output)["offsets"][0]["committed"] == 400
    done = server.run("group", "reset", "g", "--to", "offset=7", "--topic", "t:0", input="y\n")
    assert done.output.splitlines()[-1] == "offsets of group g set"
    assert done.exit_code == 0
    done = server.run("group", "reset", "g", "--to", "earliest", "--yes", "-o", "json")
    assert json.loads(done.output)["offsets"] == [{"topic": "t", "partition": 0, "before": 7, "after": 0}]
    assert server.run("group", "delete", "g", "--yes").output == "group g deleted\n"
    assert server.run("group", "describe", "g").exit_code == Exit.NOT_FOUND


def test_acls_are_created_listed_and_deleted() -> None:
    with admin_server(acls=True) as server:
        assert "NAME" in server.run("acl", "list").output
        made = server.run("acl", "create", "User:ann", "--topic", "t", "--operation", "read", "--operation", "write")
        assert made.exit_code == 0
        assert [line.split() for line in made.output.splitlines()[1:]] == [
            ["User:ann", "*", "ALLOW", operation, "TOPIC", "t", "LITERAL"] for operation in ("READ", "WRITE")
        ]
        deny = ("--prefix", "--deny", "--host", "10.0.0.1", "--operation", "all")
        assert server.run("acl", "create", "User:bob", "--topic", "t", *deny).exit_code == 0
        assert server.run("acl", "create", "User:ann", "--cluster", "--operation", "describe").exit_code == 0
        # A prefix is about every topic that begins with it.
        found = json.loads(server.run("acl", "list", "--topic", "tea", "-o", "json").output)["acls"]
        assert [(each["principal"], each["pattern_type"]) for each in found] == [("User:bob", "PREFIXED")]
        # Printed, asked for, and deleted.
        gone = server.run("acl", "delete", "--principal", "User:ann", input="y\n")
        assert gone.output.splitlines()[-1].endswith("3 ACLs deleted")
        assert server.run("acl", "delete", "--principal", "User:ann", "--yes").output == "no ACL matches\n"
        for wrong in (
            ("delete",),
            ("create", "User:ann", "--operation", "read"),
            ("create", "User:ann", "--operation", "read", "--topic", "t", "--cluster"),
            ("create", "ann", "--operation", "read", "--topic", "t"),
            ("create", "User:ann", "--operation", "create", "--group", "g"),
        ):
            assert server.run("acl", *wrong).exit_code == Exit.WRONG, wrong
        assert server.run("acl", "delete", "--all", "--yes").output == "1 ACL deleted\n"


def test_acls_that_are_not_enforced_cannot_be_changed(server: AdminServer) -> None:
    refused = server.run("acl", "create", "User:ann", "--topic", "t", "--operation", "read")
    assert (refused.exit_code, "KAFSCALE_ACLS" in refused.output) == (Exit.REFUSED, True)


def test_users_are_listed_set_and_deleted(server: AdminServer) -> None:
    assert server.run("user", "list").output.split() == ["USER", "CREDENTIALS"]
    assert server.run("user", "delete", "ann", "--yes").exit_code == Exit.NOT_FOUND
    done = server.run("user", "set", "ann", "--password-file", "-", input="secret\n")
    assert done.output == "password of user ann set\n"
    one = ("--mechanism", "scram-sha-512", "--iterations", "8192")
    assert server.run("user", "set", "bob", *one, input="pass\npass\n").exit_code == 0
    assert server.run("user", "set", "bob", input="one\nanother\n").exit_code != 0
    assert server.run("user", "set", "bob", "--password-file", "-", input="\n").exit_code == Exit.WRONG
    shown = json.loads(server.run("user", "list", "-o", "json").output)["users"]
    assert all(len(b64decode(known.pop("salt"))) == 24 for each in shown for known in each["credentials"])
    assert shown == [
        {
            "name": "ann",
            "credentials": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
                {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
            ],
        },
        {"name": "bob", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]},
    ]
    assert server.run("user", "delete", "bob", "--mechanism", "SCRAM-SHA-256", "--yes").exit_code == Exit.NOT_FOUND
    gone = server.run("user", "delete", "ann", "--mechanism", "SCRAM-SHA-256", input="y\n")
    assert gone.output.splitlines()[-1] == "SCRAM-SHA-256 of user ann deleted"
    assert server.run("user", "delete", "bob", "--yes").output == "user bob deleted\n"
    assert [line.split()[0] for line in server.run("user", "list").output.splitlines()] == ["USER", "ann"]


def test_groups_with_members_are_described_but_not_changed(server: AdminServer) -> None:
    server.there(_log, server.harness, "t", 1000)
    server.there(_join, server.harness)
    lines = server.run("group", "describe", "g").output.splitlines()
    assert lines[0] == (
        "Group g: Stable, type consumer, assigned by range, coordinator coordinator:9096; at least 0 records behind"
    )
    member = lines[3].split()[-1]
    assert lines[3].split() == ["t", "0", "-", "1,000", "-", member]
    assert lines[-1].split() == [member, "-", "test", "/127.0.0.1", "1", "partition"]
    for command in (("reset", "g", "--to", "earliest", "--topic", "t"), ("delete", "g")):
        refused = server.run("group", *command, "--yes")
        assert refused.exit_code == Exit.REFUSED
        assert refused.output.startswith("Error: The group g has members")


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("topic create t", Exit.EXISTS, "Topic 't' already exists"),
        ("topic create a+b", Exit.WRONG, "not a legal one"),
        ("topic create u --config no.such=1", Exit.WRONG, "Unknown topic config name: no.such"),
        ("topic create u --config flush.ms", Exit.WRONG, "'flush.ms' is not name=value"),
        ("topic create u --config flush.ms=1 --config flush.ms=2", Exit.WRONG, "a config is set twice"),
        ("topic describe no", Exit.NOT_FOUND, "The topic no does not exist"),
        ("topic delete no --yes", Exit.NOT_FOUND, "The topic no does not exist"),
        ("topic alter t", Exit.WRONG, "nothing to change"),
        ("topic alter t --partitions 1 --config flush.ms=9", Exit.WRONG, "already has 1 partition"),
        ("topic alter t --partitions 2 --config no.such=9", Exit.WRONG, "Unknown topic config name"),
        ("partition list no", Exit.NOT_FOUND, "The topic no does not exist"),
        ("config set t", Exit.WRONG, "nothing to change"),
        ("config set t flush.ms=x", Exit.WRONG, "flush.ms"),
        ("flush", Exit.WRONG, "name topics, or use --all"),
        ("flush t --all", Exit.WRONG, "name topics, or use --all"),
        ("flush t u --partition 0", Exit.WRONG, "exactly one topic"),
        ("flush t --partition 9", Exit.NOT_FOUND, "no partition 9"),
        ("segment list t 9", Exit.NOT_FOUND, "no partition 9"),
        ("segment verify t --partition 9", Exit.NOT_FOUND, "no partition 9"),
        ("segment verify no", Exit.NOT_FOUND, "The topic no does not exist"),
        ("group describe no", Exit.NOT_FOUND, "The group no does not exist"),
        ("group reset g --to noon", Exit.WRONG, "'noon' is not earliest"),
        ("group reset g --to offset=x", Exit.WRONG, "'x' is not an integer"),
        ("group reset g --to time=noon", Exit.WRONG, "'noon' is not a time"),
        ("group reset g --to latest --topic t:x", Exit.WRONG, "'x' is not a list of partitions"),
        ("group reset g --to latest", Exit.NOT_FOUND, "has no committed offsets"),
        ("topic list --server nowhere", Exit.WRONG, "KAFSCALE_ADMIN_SERVER = 'nowhere' is not"),
        ("topic list --server 127.0.0.1:1", Exit.UNAVAILABLE, "no gateway answers: 127.0.0.1:1: "),
        ("topic list --tls-ca /no/such", Exit.WRONG, "TLS: /no/such cannot be read"),
        ("topic list --token short", Exit.WRONG, "KAFSCALE_ADMIN_TOKEN (value not shown) is not"),
    ],
)
def test_every_error_has_a_status_and_a_message(quiet: AdminServer, command: str, code: Exit, text: str) -> None:
    result = quiet.run(*command.split())
    assert result.exit_code == code
    assert text in result.output


@pytest.fixture(scope="module")
def quiet() -> Iterator[AdminServer]:
    """Create a topic with constant state."""
    with admin_server() as server:
        server.there(server.harness.topic, "t")
        yield server


def test_a_client_without_the_proto_file_uses_reflection(quiet: AdminServer) -> None:
    """This is grpcurl's way."""
    with grpc.insecure_channel(quiet.address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        described = pool.FindServiceByName("kafscale.v1.Admin").methods_by_name["ListTopics"]
        asked, reply = (GetMessageClass(kind) for kind in (described.input_type, described.output_type))
        path = f"/kafscale.v1.Admin/{described.name}"
        call = channel.unary_unary(path, asked.SerializeToString, reply.FromString)
        assert [topic.name for topic in call(asked(), timeout=60).topics] == ["t"]


def test_the_first_gateway_that_answers_is_used(quiet: AdminServer) -> None:
    servers = f"127.0.0.1:1,{quiet.address}"
    assert quiet.run("topic", "list", "--server", servers).exit_code == 0
    assert quiet.run("topic", "list", KAFSCALE_ADMIN_SERVER=servers).exit_code == 0


def test_the_token_comes_from_an_option_or_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with admin_server(TOKEN) as server:
        for missing in ({}, {"KAFSCALE_ADMIN_TOKEN": TOKEN[:-1] + "x"}):
            refused = server.run("topic", "list", **missing)
            assert refused.exit_code == Exit.DENIED
            assert refused.output == "Error: the token is missing or wrong\n"
        assert server.run("topic", "list", KAFSCALE_ADMIN_TOKEN=TOKEN).exit_code == 0
        assert server.run("topic", "list", "--token", TOKEN, KAFSCALE_ADMIN_TOKEN="x" * 20).exit_code == 0
        assert server.run("topic", "list", KAFSCALE_ADMIN_TOKEN_FILE=str(file)).exit_code == 0
        assert server.run("topic", "list", "--token", TOKEN, KAFSCALE_ADMIN_TOKEN_FILE="/no/such").exit_code == 0


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [
        ("time=1700000000000", "timestamp_ms", 1_700_000_000_000),
        ("time=2023-11-14T22:13:20", "timestamp_ms", 1_700_000_000_000),
        ("time=2023-11-14T23:13:20.5+01:00", "timestamp_ms", 1_700_000_000_500),
        ("shift=-3", "shift_by", -3),
        ("offset=3", "offset", 3),
        ("earliest", "earliest", True),
    ],
)
def test_the_target_of_a_reset_is_parsed(where: str, field: str, value: object) -> None:
    assert reset_to(where) == {field: value}


def test_json_has_numbers_nulls_and_enumeration_names() -> None:
    reply = pb.ClusterStatusReply(
        cluster_id="c", members=[pb.ClusterMember(node_id=0, started_ms=1 << 60, health=pb.ClusterMember.READY)]
    )
    shown = plain(reply)
    assert shown["members"][0]["started_ms"] == 1 << 60
    assert (shown["members"][0]["node_id"], shown["members"][0]["health"]) == (0, "READY")
    assert plain(pb.ClusterMember())["node_id"] is None
    assert plain(pb.TopicStatus(configs={"b": "2", "a": "1"}))["configs"] == {"a": "1", "b": "2"}


def test_help_lists_the_statuses() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    assert {0, *Exit} == {int(line.split()[0]) for line in lines if line.split() and line.split()[0].isdecimal()}
