"""Counts the words of a topic in a state and, by days, in windows, and sends either count to another topic.

Arguments: bootstrap servers, consumer group, state directory, topic of words, topic of counts.
"""

import sys

from quixstreams import Application, State

bootstrap, name, directory, words, counted = sys.argv[1:]
app = Application(
    broker_address=bootstrap, consumer_group=name, auto_offset_reset="earliest", state_dir=directory, loglevel="INFO"
)
source = app.topic(words, value_deserializer="str")
sink = app.topic(counted, value_serializer="str")


def count(word: str, state: State) -> str:
    number = state.get("count", 0) + 1
    state.set("count", number)
    return f"{word} {number}"


frame = app.dataframe(source)
frame.apply(count, stateful=True).to_topic(sink)
frame.tumbling_window(86_400_000).count().current().apply(lambda window: f"day {window['value']}").to_topic(sink)
app.run()
