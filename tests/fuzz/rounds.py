"""Rounds of attacks on a process: some connections at the same time, then a look at what they have caused."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import trio

from tests.fuzz.broker import Attacked, attacked
from tests.fuzz.finding import Finding
from tests.fuzz.network import Attack, Wrong

AT_ONCE = 16
"""Attacks in a round, which are replayed together."""
_MOST_FINDINGS = 20
_PROGRESS_SECONDS = 10.0
_ROUND_SECONDS = 60.0
_ROUNDS_BETWEEN_TOPICS = 20


async def run(
    name: str,
    attack: Attack,
    directory: Path,
    seed: int,
    iterations: range,
    seconds: float,
    say: Callable[[str], None],
) -> list[Finding]:
    """Attack a process for some time and return what was found."""
    found: list[Finding] = []
    async with attacked(directory) as target, trio.open_nursery() as nursery:
        nursery.start_soon(target.serve_witness)
        end = shown = trio.current_time()
        end += seconds
        for first in iterations[::AT_ONCE]:
            await _round(name, attack, target, seed, range(first, first + AT_ONCE), found)
            faults = await target.new_faults()
            if (first // AT_ONCE) % _ROUNDS_BETWEEN_TOPICS == 0 and not faults:
                await target.prepare()
            found += (Finding(name, first, fault, count=AT_ONCE) for fault in faults)
            now = trio.current_time()
            if now - shown > _PROGRESS_SECONDS:
                shown = now
                say(
                    f"{name}: {first - iterations.start} attacks, {len(found)} findings; the well-behaved client was "
                    f"served {target.served} times, in at most {target.slowest:.2f} s; {target.highest >> 20} MiB"
                )
            if now > end or len(found) >= _MOST_FINDINGS or not target.node.running:
                break
        nursery.cancel_scope.cancel()
    return found


async def _round(
    name: str, attack: Attack, target: Attacked, seed: int, iterations: range, found: list[Finding]
) -> None:
    async def one(iteration: int) -> None:
        try:
            with trio.move_on_after(_ROUND_SECONDS) as patience:
                await attack(target, Random(f"{seed}/{name}/{iteration}"))
            if patience.cancelled_caught:
                found.append(Finding(name, iterations.start, "an attack was not ended", count=AT_ONCE))
        except Wrong as error:
            found.append(Finding(name, iteration, str(error)))
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            # The process closed the connection.
            return

    async with trio.open_nursery() as attacks:
        for iteration in iterations:
            attacks.start_soon(one, iteration)
