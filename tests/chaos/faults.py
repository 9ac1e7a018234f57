"""The faults of a chaos run, and their seeded order.

A fault starts a failure, waits, and ends it. Each fault has its own random generator, so a seed repeats the same
faults. What they hit depends on the moment.
"""

import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import trio

from tests.chaos.node import STOP_SECONDS, Node
from tests.chaos.world import LEASE_SECONDS, World
from tests.support.proxies.s3 import HEALTHY, S3Faults
from tests.support.proxies.tcp import BOTH, Direction, TcpProxy

T = TypeVar("T")
_CALM_SECONDS = (0.5, 4.0)
_REWRITE_SECONDS = 10.0
_LOOK_SECONDS = 0.02
Say = Callable[[str], None]


@dataclass(frozen=True)
class Scene:
    """The arguments of a fault."""

    world: World
    dice: random.Random
    say: Say


Fault = Callable[[Scene], Awaitable[None]]


async def kill_gateway(scene: Scene) -> None:
    await _kill(scene, scene.dice.choice(scene.world.gateways))


async def kill_storage(scene: Scene) -> None:
    await _kill(scene, scene.dice.choice(_up(scene)))


async def kill_indexer(scene: Scene) -> None:
    await _kill(scene, scene.dice.choice(scene.world.indexers))


async def kill_every_indexer(scene: Scene) -> None:
    """Kill all indexers. Segments must still get their indexes."""
    async with trio.open_nursery() as nursery:
        for node in scene.world.indexers:
            nursery.start_soon(_kill, scene, node)


async def kill_every_storage(scene: Scene) -> None:
    async with trio.open_nursery() as nursery:
        for node in scene.world.storages:
            nursery.start_soon(_kill, scene, node)


async def kill_and_restart_at_once(scene: Scene) -> None:
    """Kill a process and restart it while the lease of its predecessor is alive."""
    await _kill(scene, scene.dice.choice(_up(scene)), longest=0.0)


async def pause_gateway(scene: Scene) -> None:
    await _pause(scene, scene.dice.choice(scene.world.gateways))


async def pause_storage(scene: Scene) -> None:
    """Pause an instance for longer than its lease. Others take over, then the old owner continues where it stopped."""
    await _pause(scene, scene.dice.choice(_up(scene)))


async def pause_storages_in_turn(scene: Scene) -> None:
    """Move ownership from A to B and back."""
    for node in scene.dice.sample(scene.world.storages, 2):
        await _pause(scene, node)


async def pause_indexer(scene: Scene) -> None:
    await _pause(scene, scene.dice.choice(scene.world.indexers))


async def kill_rewriting_indexer(scene: Scene) -> None:
    if found := await _rewriting(scene):
        await _kill(scene, found[0])


async def pause_rewriting_indexer(scene: Scene) -> None:
    """Pause an indexer that rewrites a log. Later it continues although another rewrite has replaced its own."""
    if found := await _rewriting(scene):
        await _pause(scene, found[0])


async def kill_rewrite(scene: Scene) -> None:
    """Kill the process in which an indexer rewrites a log, as the kernel does if memory is short."""
    if found := await _rewriting(scene):
        node, child = found
        scene.say(f"kill -9 a rewrite of {node.name}")
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


async def kill_storage_during_rewrites(scene: Scene) -> None:
    """Kill an instance while an indexer rewrites a log, and restart it."""
    if await _rewriting(scene):
        await _kill(scene, scene.dice.choice(_up(scene)))


async def stop_storage(scene: Scene) -> None:
    """Send SIGTERM to an instance, which hands over what it owns."""
    node = scene.dice.choice(scene.world.storages[:-1])
    await _stop(scene, node)
    await trio.sleep(scene.dice.uniform(0, 3))
    node.start()
    scene.say(f"{node.name} started")


async def stop_gateway(scene: Scene) -> None:
    node = scene.dice.choice(scene.world.gateways)
    await _stop(scene, node)
    node.start()
    scene.say(f"{node.name} started")


async def add_storage(scene: Scene) -> None:
    """Start the spare instance, which is assigned its share, and stop it with SIGTERM."""
    spare = scene.world.spare
    spare.start()
    scene.say(f"{spare.name} added")
    await trio.sleep(scene.dice.uniform(5, 10))
    await _stop(scene, spare)


async def cut_links(scene: Scene) -> None:
    """Reset all connections of some links several times."""
    links = _some(scene)
    for _ in range(scene.dice.randrange(1, 6)):
        scene.say(f"cut {_names(links)}")
        for _, link in links:
            link.cut()
        await trio.sleep(scene.dice.uniform(0.1, 1.5))


async def stall_links(scene: Scene) -> None:
    """Stall links: they accept data and forward nothing. Then forward it late or drop it."""
    links = _some(scene)
    directions = scene.dice.choice([BOTH, {Direction.TO_SERVER}, {Direction.TO_CLIENT}])
    lost = scene.dice.random() < 0.5
    ways = " and ".join(sorted(direction.value for direction in directions))
    scene.say(f"stall {_names(links)}, {ways}, {'lost' if lost else 'late'}")
    for _, link in links:
        link.stall(frozenset(directions))
    await trio.sleep(scene.dice.uniform(1, 2.5 * LEASE_SECONDS))
    for _, link in links:
        if lost:
            link.cut()
        link.heal()
    scene.say(f"healed {_names(links)}")


async def stall_etcd_for_one_storage(scene: Scene) -> None:
    """Stall etcd for one instance, which loses its lease while all others can reach it."""
    node = scene.dice.choice(_up(scene))
    link = scene.world.links[f"{node.name} > etcd"]
    directions = scene.dice.choice([BOTH, {Direction.TO_CLIENT}])
    scene.say(f"stall {node.name} > etcd")
    link.stall(frozenset(directions))
    await trio.sleep(scene.dice.uniform(1, 3) * LEASE_SECONDS)
    link.heal()
    scene.say(f"healed {node.name} > etcd")


async def slow_links(scene: Scene) -> None:
    links = _some(scene)
    seconds = scene.dice.uniform(0.02, 0.3)
    scene.say(f"delay {_names(links)} by {seconds * 1000:.0f} ms")
    for _, link in links:
        link.delay_seconds = seconds
    await trio.sleep(scene.dice.uniform(2, 6))
    for _, link in links:
        link.heal()
    scene.say(f"healed {_names(links)}")


async def refuse_links(scene: Scene) -> None:
    links = _some(scene)
    scene.say(f"refuse {_names(links)}")
    for _, link in links:
        link.refusing = True
        link.cut()
    await trio.sleep(scene.dice.uniform(0.5, 5))
    for _, link in links:
        link.heal()
    scene.say(f"healed {_names(links)}")


async def s3_errors(scene: Scene) -> None:
    await _s3(scene, S3Faults(slow_down=scene.dice.uniform(0.1, 0.6), internal=scene.dice.uniform(0.1, 0.4)))


async def s3_loses_answers(scene: Scene) -> None:
    await _s3(scene, S3Faults(lost=scene.dice.uniform(0.2, 0.6), truncated=scene.dice.uniform(0.0, 0.3)))


async def s3_answers_late(scene: Scene) -> None:
    """Execute requests long after their sender has given up or died."""
    await _s3(scene, S3Faults(late=scene.dice.uniform(0.1, 0.5), lost=scene.dice.uniform(0.0, 0.3)))


async def s3_slow(scene: Scene) -> None:
    await _s3(scene, S3Faults(slow=scene.dice.uniform(0.3, 0.9), stalled=scene.dice.uniform(0.0, 0.1)))


async def s3_everything(scene: Scene) -> None:
    await _s3(
        scene,
        S3Faults(slow_down=0.1, internal=0.1, lost=0.15, late=0.15, slow=0.15, stalled=0.02, truncated=0.1),
    )


async def pause_minio(scene: Scene) -> None:
    scene.say("pause minio")
    scene.world.minio.pause()
    await trio.sleep(scene.dice.uniform(1, 6))
    scene.world.minio.resume()
    scene.say("minio resumed")


async def kill_minio(scene: Scene) -> None:
    await _kill(scene, scene.world.minio)


async def restart_etcd(scene: Scene) -> None:
    scene.say("kill -9 etcd")
    await _in_thread(scene.world.etcd.kill)
    await trio.sleep(scene.dice.uniform(0, 3))
    scene.world.etcd.start()
    scene.say("etcd started")


async def pause_etcd(scene: Scene) -> None:
    scene.say("pause etcd")
    scene.world.etcd.pause()
    await trio.sleep(scene.dice.uniform(0.5, 2) * LEASE_SECONDS)
    scene.world.etcd.resume()
    scene.say("etcd resumed")


FAULTS: dict[str, Fault] = {
    fault.__name__.replace("_", " "): fault
    for fault in (
        kill_storage,
        pause_storage,
        s3_loses_answers,
        kill_gateway,
        stall_etcd_for_one_storage,
        restart_etcd,
        add_storage,
        stall_links,
        s3_answers_late,
        pause_minio,
        cut_links,
        kill_and_restart_at_once,
        s3_errors,
        stop_storage,
        pause_etcd,
        kill_minio,
        pause_storages_in_turn,
        slow_links,
        kill_every_indexer,
        kill_rewriting_indexer,
        pause_rewriting_indexer,
        kill_rewrite,
        kill_storage_during_rewrites,
        s3_everything,
        kill_every_storage,
        pause_gateway,
        stop_gateway,
        kill_indexer,
        pause_indexer,
        refuse_links,
        s3_slow,
    )
}


async def storm(world: World, seed: int, begin: Callable[[str], Say]) -> None:
    """Run one or two faults at a time, with short pauses between them, until cancelled.

    ``begin`` is called with the name of each fault and returns the function for its messages. Names come from shuffled
    decks, so all faults occur before any is repeated.
    """
    dice = random.Random(f"{seed} order")
    names = _decks(dice)
    number = 0
    while True:
        async with trio.open_nursery() as nursery:
            for _ in range(2 if dice.random() < 0.4 else 1):
                name = next(names)
                scene = Scene(world, random.Random(f"{seed} {number}"), begin(name))
                nursery.start_soon(FAULTS[name], scene)
                number += 1
        await trio.sleep(dice.uniform(*_CALM_SECONDS))


def _decks(dice: random.Random) -> Iterator[str]:
    while True:
        yield from dice.sample(sorted(FAULTS), len(FAULTS))


async def _in_thread(do: Callable[[], T]) -> T:
    """Run ``do`` in a thread. Wait for its end even if the run is cancelled."""
    return await trio.to_thread.run_sync(do)


async def _kill(scene: Scene, node: Node, *, longest: float = 4.0) -> None:
    if not node.wanted:
        return
    scene.say(f"kill -9 {node.name}")
    await _in_thread(node.kill)
    await trio.sleep(scene.dice.uniform(0, longest))
    node.start()
    scene.say(f"{node.name} started")


async def _pause(scene: Scene, node: Node) -> None:
    if not node.wanted:
        return
    scene.say(f"pause {node.name}")
    node.pause()
    await trio.sleep(scene.dice.uniform(1.2, 2.5) * LEASE_SECONDS)
    node.resume()
    scene.say(f"{node.name} resumed")


async def _rewriting(scene: Scene) -> tuple[Node, int] | None:
    """Wait until an indexer rewrites a log. Return it and the process that it started, or None after some seconds."""
    with trio.move_on_after(_REWRITE_SECONDS):
        while True:
            for node in scene.dice.sample(scene.world.indexers, len(scene.world.indexers)):
                if node.wanted and node.pid is not None and (children := children_of(node.pid)):
                    return node, children[0]
            await trio.sleep(_LOOK_SECONDS)
    scene.say("no indexer rewrites a log")
    return None


def children_of(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of the program, in parentheses, may contain blanks.
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


async def _stop(scene: Scene, node: Node) -> None:
    if not node.running:
        return
    scene.say(f"stop {node.name}")
    status = await _in_thread(node.stop)
    how = f"with status {status}" if status is not None else f"after {STOP_SECONDS:g} s, by kill -9"
    scene.say(f"{node.name} exited {how}")


async def _s3(scene: Scene, faults: S3Faults) -> None:
    """Apply S3 faults to one service or to all."""
    hit = sorted(scene.world.s3) if scene.dice.random() < 0.5 else [scene.dice.choice(_up(scene)).name]
    stores = [scene.world.s3[name] for name in hit]
    rates = ", ".join(f"{name} {rate:.0%}" for name, rate in _rates(faults))
    scene.say(f"S3 of {'all' if len(hit) > 1 else hit[0]}: {rates}")
    for store in stores:
        store.faults = faults
    await trio.sleep(scene.dice.uniform(2, 8))
    for store in stores:
        store.faults = HEALTHY
    scene.say("S3 works again")


def _rates(faults: S3Faults) -> Iterator[tuple[str, float]]:
    for name in S3Faults.__dataclass_fields__:
        if rate := getattr(faults, name):
            yield name, rate


def _up(scene: Scene) -> list[Node]:
    """Return the storage instances that should run: all, or all except the spare."""
    return [node for node in scene.world.storages if node.wanted or node is not scene.world.spare]


def _some(scene: Scene) -> Sequence[tuple[str, TcpProxy]]:
    """Return all links of a kind, or one of them."""
    kind = scene.dice.choice(["clients > ", "rpc > storage", "rpc > indexer", " > etcd"])
    down = {node.name for node in scene.world.storages} - {node.name for node in _up(scene)}
    links = [
        (name, link)
        for name, link in sorted(scene.world.links.items())
        if kind in name and not down.intersection(name.split(" > "))
    ]
    return links if scene.dice.random() < 0.5 else [scene.dice.choice(links)]


def _names(links: Sequence[tuple[str, TcpProxy]]) -> str:
    """Return the name of a single link, or the kind of several."""
    name = links[0][0]
    if len(links) == 1:
        return name
    return "all > etcd" if name.endswith("etcd") else f"{name.rpartition('-')[0]}s"
