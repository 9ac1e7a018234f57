"""A process that test_sqlite.py kills: commits numbered transactions and prints each one whose commit has returned."""

import sys
from pathlib import Path

import trio

from kafscale.metadata.interface import Put
from kafscale.metadata.sqlite import open_sqlite


async def main() -> None:
    async with open_sqlite(Path(sys.argv[1])) as store:
        lease = await store.grant_lease(3600)
        number = int(sys.argv[2])
        while True:
            number += 1
            text = b"%d" % number
            puts = [
                Put("left", text),
                Put(f"n/{number}", text),
                Put("right", text),
                Put(f"member/{number}", b"", lease),
            ]
            await store.txn([], puts)
            print(number, flush=True)


trio.run(main)
