"""What a request asks for: an operation on a resource of some type, which ACLs allow or deny."""

from typing import NamedTuple

from kafscale.security.acls import Operation, ResourceType


class Ask(NamedTuple):
    """An operation on a resource, whose name comes with it."""

    operation: Operation
    type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.type.name}"


_O, _T = Operation, ResourceType
READ_TOPIC = Ask(_O.READ, _T.TOPIC)
WRITE_TOPIC = Ask(_O.WRITE, _T.TOPIC)
CREATE_TOPIC = Ask(_O.CREATE, _T.TOPIC)
DELETE_TOPIC = Ask(_O.DELETE, _T.TOPIC)
ALTER_TOPIC = Ask(_O.ALTER, _T.TOPIC)
DESCRIBE_TOPIC = Ask(_O.DESCRIBE, _T.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Ask(_O.DESCRIBE_CONFIGS, _T.TOPIC)
ALTER_TOPIC_CONFIGS = Ask(_O.ALTER_CONFIGS, _T.TOPIC)
READ_GROUP = Ask(_O.READ, _T.GROUP)
DESCRIBE_GROUP = Ask(_O.DESCRIBE, _T.GROUP)
DELETE_GROUP = Ask(_O.DELETE, _T.GROUP)
DESCRIBE_GROUP_CONFIGS = Ask(_O.DESCRIBE_CONFIGS, _T.GROUP)
ALTER_GROUP_CONFIGS = Ask(_O.ALTER_CONFIGS, _T.GROUP)
CREATE_IN_CLUSTER = Ask(_O.CREATE, _T.CLUSTER)
DELETE_IN_CLUSTER = Ask(_O.DELETE, _T.CLUSTER)
ALTER_CLUSTER = Ask(_O.ALTER, _T.CLUSTER)
DESCRIBE_CLUSTER = Ask(_O.DESCRIBE, _T.CLUSTER)
CLUSTER_ACTION = Ask(_O.CLUSTER_ACTION, _T.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Ask(_O.DESCRIBE_CONFIGS, _T.CLUSTER)
ALTER_CLUSTER_CONFIGS = Ask(_O.ALTER_CONFIGS, _T.CLUSTER)
IDEMPOTENT_WRITE = Ask(_O.IDEMPOTENT_WRITE, _T.CLUSTER)
WRITE_TRANSACTIONAL_ID = Ask(_O.WRITE, _T.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Ask(_O.DESCRIBE, _T.TRANSACTIONAL_ID)
