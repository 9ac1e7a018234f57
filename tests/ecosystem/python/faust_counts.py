"""Counts the words of a topic in a table and, by days, in a windowed one, and sends both counts to another topic.

Arguments: bootstrap servers, application id, data directory, topic of words, topic of counts.
"""

import sys
from pathlib import Path

import faust

bootstrap, name, directory, words, counted = sys.argv[1:]
app = faust.App(name, broker=f"kafka://{bootstrap}", datadir=Path(directory), web_enabled=False)
source = app.topic(words, key_type=bytes, value_type=bytes, value_serializer="raw")
sink = app.topic(counted, key_type=bytes, value_type=bytes, value_serializer="raw")
counts = app.Table("counts", default=int, partitions=2)
days = app.Table("days", default=int, partitions=2).tumbling(86_400.0)


@app.agent(source)
async def count(stream: faust.StreamT[bytes]) -> None:
    async for value in stream:
        word = value.decode()
        counts[word] += 1
        days[word] += 1
        await sink.send(key=value, value=f"{word} {counts[word]} {days[word].current()}".encode())


app.finalize()
faust.Worker(app, loglevel="info", redirect_stdouts=False).execute_from_commandline()
