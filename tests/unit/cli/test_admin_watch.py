"""`kafscale watch`: a line for each change."""

from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.watch import line


def test_changes_are_printed_as_lines() -> None:
    kinds = pb.MemberChange
    a = pb.ClusterMember(service="storage", address="a:9095", health=pb.ClusterMember.UNREACHABLE, detail="no\rway")
    draining = pb.ClusterMember(service="storage", address="a:9095", leaving=True, draining=True)
    back = pb.ClusterMember(service="coordinator")
    changes = [
        pb.ClusterChange(time_ms=1000, member=kinds(kind=kinds.PRESENT, member=a)),
        pb.ClusterChange(time_ms=1000, member=kinds(kind=kinds.JOINED, member=a)),
        pb.ClusterChange(time_ms=1000, member=kinds(kind=kinds.CHANGED, member=draining)),
        pb.ClusterChange(time_ms=1000, member=kinds(kind=kinds.CHANGED, member=back)),
        pb.ClusterChange(time_ms=1000, member=kinds(kind=kinds.LEFT, member=a)),
        pb.ClusterChange(
            time_ms=1000, owner=pb.OwnerChange(topic="t", partition=3, owner="a:9095", owner_run="r", epoch=7)
        ),
        pb.ClusterChange(time_ms=1000, owner=pb.OwnerChange(topic="t", partition=3, epoch=-1)),
    ]
    lines = [line(change).removeprefix("1970-01-01 00:00:01.000Z  ") for change in changes]
    assert lines == [
        "storage a:9095 is unreachable: no\\rway",
        "storage a:9095 joined",
        "storage a:9095 is draining",
        "coordinator (in process) is no longer drained",
        "storage a:9095 left",
        "t-3 is owned by a:9095 in epoch 7",
        "t-3 no longer exists",
    ]
