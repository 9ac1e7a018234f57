"""Signals whose effect a test has to wait for."""

import os
import signal


def pause(pid: int) -> None:
    """SIGSTOP to a child, and wait until all its threads are stopped, or it has ended.

    The signal alone returns before: threads of a busy machine still answer what comes next.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
