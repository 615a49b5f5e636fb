"""Event loops for synchronous code: one for each thread that runs agents synchronously.

A loop is kept from one run to the next, so that clients with open connections survive. The loop is closed when its
thread ends, or with the program, without any call. If the program has set its own loop (`asyncio.set_event_loop`), that
loop is used and left open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

CLOSING_S_MAX = 10.0
# A thread that ends waits this long for its loop to close; what is left over then is a task that swallows cancellation.


class _ThreadLoop:
    """Event loop of a thread. A `threading.local` holds it, and drops it when the thread ends."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.process = os.getpid()
        self.end = weakref.finalize(self, _close, self.runner)


_kept = threading.local()
_inherited: list[_ThreadLoop] = []


def run_on_thread_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on this thread's loop.

    Ctrl-C, or SystemExit of a signal's handler, cancels the coroutine, lets it finish in order, and is raised.
    """
    runner = _runner_here()
    tasks: list[asyncio.Task[Any]] = []
    try:
        with _woken_by_signals(runner.get_loop()):
            return runner.run(_register_and_run(work, tasks))
    finally:
        _end(runner, tasks)


def _runner_here() -> asyncio.Runner:
    kept: _ThreadLoop | None = getattr(_kept, "loop", None)
    theirs = _programs_loop()
    if theirs is not None and (kept is None or theirs is not kept.runner.get_loop()):
        # A runner for the sake of Ctrl-C; it is never closed, because the loop stays the program's.
        return asyncio.Runner(loop_factory=lambda: theirs)
    if kept is not None and kept.process != os.getpid():
        # After os.fork the loop's selector is still shared with the parent: closing it here would take the parent's
        # registrations away. It is neither used nor closed.
        kept.end.detach()
        _inherited.append(kept)
        kept = None
    if kept is None:
        kept = _kept.loop = _ThreadLoop()
    return kept.runner


def _programs_loop() -> asyncio.AbstractEventLoop | None:
    """Return the program's own loop for this thread, if open and not running: the program's clients belong to it."""
    found = getattr(getattr(asyncio.get_event_loop_policy(), "_local", None), "_loop", None)
    usable = isinstance(found, asyncio.AbstractEventLoop) and not found.is_closed() and not found.is_running()
    return found if usable else None


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake the event loop when a signal arrives.

    Python runs a signal's handler in the main thread between two bytecodes. A signal that arrives in another thread, or
    just before the main thread waits for events, does not end that wait: Ctrl-C would have no effect until some event.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.ExitStack() as cleanup:
        reading, writing = (cleanup.enter_context(end) for end in socket.socketpair())
        reading.setblocking(False)
        writing.setblocking(False)
        with contextlib.suppress(NotImplementedError):  # Windows' own loop does all of this by itself
            loop.add_reader(reading, reading.recv, 4096)
            cleanup.callback(loop.remove_reader, reading)
            previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
            cleanup.callback(signal.set_wakeup_fd, previous)
            if previous != -1:  # the program's own: its loop is woken already
                signal.set_wakeup_fd(previous)
        yield


async def _register_and_run(work: Coroutine[Any, Any, T], tasks: list[asyncio.Task[Any]]) -> T:
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    return await work


def _end(runner: asyncio.Runner, tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel and await tasks left by a SystemExit of a signal handler: the loop is kept, so no other code would end
    them.
    """
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        runner.get_loop().run_until_complete(asyncio.wait(left))


def _close(runner: asyncio.Runner) -> None:
    if threading.get_ident() == threading.main_thread().ident:
        with contextlib.suppress(RuntimeError):  # at exit, a daemon's loop may be running: it ends with the process
            runner.close()
        return
    # This runs in a thread that is ending and no longer has a Thread object. Closing starts and joins threads, which
    # would make one up for it and keep it, so a thread that is alive does it.
    closed = threading.Event()
    threading.Thread(target=_close_and_say, args=(runner, closed), name="standfast-close", daemon=True).start()
    closed.wait(CLOSING_S_MAX)


def _close_and_say(runner: asyncio.Runner, closed: threading.Event) -> None:
    try:
        runner.close()
    finally:
        closed.set()
