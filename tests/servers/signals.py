"""Signals whose effect tests must wait for."""

import os
import signal


def pause(pid: int) -> None:
    """Send SIGSTOP to a child and wait until all its threads have stopped or it has ended.

    Without the wait, threads may still answer the next request on a busy machine.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
