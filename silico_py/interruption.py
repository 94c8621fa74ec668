"""Ctrl-C ends a command at once, even while XLA compiles.

Python handles signals between its own instructions. It would wait for a compilation to end, in any
thread, and JAX crashes when it is torn down during one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

from rich.console import Console

INTERRUPTED = 130  # exit code, as shells give it


def end_at_once() -> None:
    """From now on an interrupt ends this program; what it is writing stays unfinished."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno())  # is written to when the signal comes
    threading.Thread(target=_watch, args=(receiver, sender), daemon=True).start()


def leave_to_python() -> None:
    """From now on it is a `KeyboardInterrupt` again."""
    signal.set_wakeup_fd(-1)


def _watch(receiver: socket.socket, _sender: socket.socket) -> None:
    """Wait for the signal; holding `_sender` keeps the pair open."""
    while signal.SIGINT not in receiver.recv(64):
        pass
    Console().show_cursor()  # a progress bar hides it
    print("\ninterrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
