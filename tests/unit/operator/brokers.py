"""A simulated gateway: the topics, users and ACLs of a cluster, and the methods of the Admin service about them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import grpc

from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import Method
from kafscale.security.scram import Mechanism, salted_password
from kafscale.v1 import admin_pb2 as pb
from tests.unit.operator.steps import Steps

_STATUS = grpc.StatusCode


class Brokers:
    """The topics and users of a cluster, as a gateway reports them."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.topics: dict[str, pb.TopicStatus] = {}
        self.users: dict[str, dict[str, pb.NewCredential]] = {}
        """The credentials by user and mechanism."""
        self.acls: set[tuple[str, ...]] | None = set()
        """The fields of AccessRules in order; None: they are not enforced."""
        self.most_acls = 100
        self.calls: Counter[str] = Counter()
        self.refuses: StatusError | None = None
        self.answers_lost = False
        """Changes are made, but their replies are lost."""

    async def call(self, method: Method[Any, Any], request: Any, **_: Any) -> Any:
        name = method.path.rpartition("/")[2]
        self.calls[name] += 1
        if self.refuses is not None:
            raise self.refuses
        if name in ("DescribeTopic", "ClusterStatus", "ListUsers", "ListAcls"):
            return getattr(self, name)(request)
        answer = self._steps.take(lambda: getattr(self, name)(request))
        if self.answers_lost:
            raise StatusError(_STATUS.DEADLINE_EXCEEDED, "Deadline Exceeded")
        return answer

    def add(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.topics[name] = pb.TopicStatus(name=name, id=f"id-{name}", partitions=partitions, configs=configs)

    def DescribeTopic(self, request: pb.DescribeTopicRequest) -> pb.DescribeTopicReply:  # noqa: N802
        return pb.DescribeTopicReply(topic=self._topic(request.name))

    def ClusterStatus(self, _: pb.ClusterStatusRequest) -> pb.ClusterStatusReply:  # noqa: N802
        services = ("gateway", "storage", "indexer", "coordinator")
        members = [pb.ClusterMember(service=service, health=pb.ClusterMember.READY) for service in services]
        members.append(pb.ClusterMember(service="storage", health=pb.ClusterMember.UNREACHABLE))
        return pb.ClusterStatusReply(cluster_id="abc", topics=len(self.topics), partitions=7, members=members)

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:  # noqa: N802
        if request.name in self.topics:
            raise StatusError(_STATUS.ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        self.add(request.name, request.partitions or 3, dict(request.configs))
        return pb.CreateTopicReply(topic=self.topics[request.name])

    def GrowTopic(self, request: pb.GrowTopicRequest) -> pb.GrowTopicReply:  # noqa: N802
        topic = self._topic(request.name)
        if request.partitions > 100:
            raise StatusError(_STATUS.INVALID_ARGUMENT, f"{request.partitions} partitions exceed the limit of 100.")
        topic.partitions = request.partitions
        return pb.GrowTopicReply(topic=topic)

    def AlterConfigs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsReply:  # noqa: N802
        topic = self._topic(request.topic)
        topic.configs.update(request.set)
        for name in request.unset:
            topic.configs.pop(name, None)
        return pb.AlterConfigsReply()

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicReply:  # noqa: N802
        self._topic(request.name)
        del self.topics[request.name]
        return pb.DeleteTopicReply()

    def has_password(self, user: str, mechanism: str, password: str) -> bool:
        known = self.users[user][mechanism]
        salted = salted_password(Mechanism(mechanism), password.encode(), known.salt, known.iterations)
        return salted == known.salted_password

    def ListUsers(self, request: pb.ListUsersRequest) -> pb.ListUsersReply:  # noqa: N802
        reply = pb.ListUsersReply()
        for name, known in self.users.items():
            if request.name in ("", name):
                credentials = [
                    pb.UserStatus.Credential(mechanism=mechanism, iterations=each.iterations, salt=each.salt)
                    for mechanism, each in known.items()
                ]
                reply.users.append(pb.UserStatus(name=name, credentials=credentials))
        return reply

    def SetUserCredentials(self, request: pb.SetUserCredentialsRequest) -> pb.SetUserCredentialsReply:  # noqa: N802
        self.users.setdefault(request.name, {}).update({each.mechanism: each for each in request.credentials})
        return pb.SetUserCredentialsReply()

    def DeleteUserCredentials(  # noqa: N802
        self, request: pb.DeleteUserCredentialsRequest
    ) -> pb.DeleteUserCredentialsReply:
        known = self.users.get(request.name, {})
        for mechanism in request.mechanisms or [*known] or [""]:
            if known.pop(mechanism, None) is None:
                raise StatusError(_STATUS.NOT_FOUND, f"User '{request.name}' has no {mechanism}")
        if not known:
            del self.users[request.name]
        return pb.DeleteUserCredentialsReply()

    def ListAcls(self, request: pb.ListAclsRequest) -> pb.ListAclsReply:  # noqa: N802
        return pb.ListAclsReply(acls=[_rule(each) for each in sorted(self._selected(request.filter))])

    def CreateAcls(self, request: pb.CreateAclsRequest) -> pb.CreateAclsReply:  # noqa: N802
        if len({*self._enforced(), *map(_fields, request.acls)}) > self.most_acls:
            raise StatusError(_STATUS.INVALID_ARGUMENT, f"There would be more than {self.most_acls} ACLs")
        self._enforced().update(map(_fields, request.acls))
        return pb.CreateAclsReply()

    def DeleteAcls(self, request: pb.DeleteAclsRequest) -> pb.DeleteAclsReply:  # noqa: N802
        gone = self._selected(request.filter)
        self._enforced().difference_update(gone)
        return pb.DeleteAclsReply(acls=map(_rule, gone))

    def _selected(self, wanted: pb.AccessRuleFilter) -> set[tuple[str, ...]]:
        fields = _fields(wanted)
        return {
            acl for acl in self._enforced() if all(value in ("", has) for value, has in zip(fields, acl, strict=True))
        }

    def _enforced(self) -> set[tuple[str, ...]]:
        if self.acls is None:
            raise StatusError(_STATUS.FAILED_PRECONDITION, "ACLs are not enforced. Set KAFSCALE_ACLS=true.")
        return self.acls

    def _topic(self, name: str) -> pb.TopicStatus:
        if name not in self.topics:
            raise StatusError(_STATUS.NOT_FOUND, f"The topic {name} does not exist.")
        return self.topics[name]


_ACL_FIELDS = ("resource_type", "pattern_type", "name", "principal", "host", "operation", "permission")


def _fields(rule: pb.AccessRule | pb.AccessRuleFilter) -> tuple[str, ...]:
    return tuple(getattr(rule, name) for name in _ACL_FIELDS)


def _rule(fields: tuple[str, ...]) -> pb.AccessRule:
    return pb.AccessRule(**dict(zip(_ACL_FIELDS, fields, strict=True)))
