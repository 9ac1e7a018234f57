"""Topics: the topics and storage addresses that a reader or writer of whole topics needs first."""

from kafscale import paths
from kafscale.metadata.topic_values import TopicInfo
from kafscale.topics.configs import default_values
from kafscale.v1.storage_pb2 import TopicDescription, TopicsReply, TopicsRequest
from services.storage.dependencies import Dependencies


async def topics(deps: Dependencies, request: TopicsRequest) -> TopicsReply:
    """Return the live topics and the addresses of the storage instances. Raises Unavailable."""
    view = deps.catalog.view
    found = dict(view.by_name)
    for name in request.names:
        if name not in found and paths.is_topic_name(name):
            # The topic may have just been created and not be in the view yet.
            item = await deps.metadata.get(paths.topic_key(deps.namespace, name))
            if item is not None:
                found[name] = TopicInfo.read(item)
    requested = sorted(set(request.names) & found.keys() if request.names else found)
    defaults = default_values(deps.settings)
    return TopicsReply(
        topics=[_description(found[name], defaults) for name in requested if found[name].live],
        instances=[address for live in deps.members.view.placed if (address := live.address or deps.listener)],
    )


def _description(topic: TopicInfo, defaults: dict[str, str]) -> TopicDescription:
    configs = defaults | dict(topic.configs)
    return TopicDescription(name=topic.name, id=topic.id, partitions=topic.partitions, configs=configs)
