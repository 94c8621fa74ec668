"""A function in a process of its own, whose death or silence costs an answer and no more."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any


class WorkerError(RuntimeError):
    """No answer: the function raised, its process died, or time ran out."""


class Worker:
    """Answers questions, one after the other, from a fresh process.

    Args:
        function: of one argument; importable, since the process imports it anew. Argument and
            result are pickled.
        environment: variables that the process starts with, added to those of this one.

    Use it as a context manager: leaving it ends the process.
    """

    def __init__(
        self, function: Callable[[Any], Any], environment: Mapping[str, str] | None = None
    ) -> None:
        fresh = multiprocessing.get_context("spawn")
        self._connection, theirs = fresh.Pipe()
        self._process = fresh.Process(target=_serve, args=(function, theirs), daemon=True)
        with _environment(environment or {}):
            self._process.start()
        theirs.close()

    def ask(self, question: Any, timeout: float) -> Any:
        """The function's result.

        Raises:
            WorkerError: for no result within `timeout` seconds. Unless the function itself
                raised, the process has ended and every later question fails, too.
        """
        try:
            self._connection.send(question)
            if not self._connection.poll(timeout):
                self.close()
                raise WorkerError(f"no answer in {timeout:g} s")
            answered, result = self._connection.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerError(f"its process died, exit code {self._process.exitcode}") from error
        if not answered:
            raise WorkerError(result)
        return result

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(function: Callable[[Any], Any], connection: Connection) -> None:
    with contextlib.suppress(EOFError, KeyboardInterrupt):  # the other side has gone
        while True:
            question = connection.recv()
            try:
                answer = True, function(question)
            except Exception as error:
                answer = False, f"{type(error).__name__}: {error}".splitlines()[0]
            connection.send(answer)


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
