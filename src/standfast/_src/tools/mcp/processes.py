"""MCP server as a child process: pipes as streams for the `mcp` library, and an end in every case.

A replacement of `mcp.client.stdio`, for three reasons: that one lets a server survive a killed program, it keeps an
endless line in memory without a bound, and it does not report why a server ended. (On Windows it is used unchanged:
there the system ends a program's children with it.)
"""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from standfast._src.base.errors import MCPServerError
from standfast._src.base.logs import logger

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

EXIT_S_MAX = 2.0
# How long a server may take to end once its input has; then it is asked to (SIGTERM), then killed.
TERMINATION_S_MAX = 1.0
WRITE_S_MAX = 30.0
# How long a message may take into the pipe: a server that reads nothing would otherwise hold its callers for ever.
MESSAGE_LENGTH_MAX = 64 * 1024 * 1024
# One message: a line of a process, a body or an event over HTTP. Images and files come this way, so the bound is wide.
# Without one, a server that sends without end fills the memory.
GARBAGE_LINES_MAX = 1000
# Servers do print to their output by mistake; one that says nothing else is no MCP server.
CHUNK_BYTES = 64 * 1024

GUARDIAN = Path(__file__).with_name("process_guard.py")


@dataclass(frozen=True)
class ProcessParameters:
    """Start parameters of a server process; the fields are those of `mcp.StdioServerParameters`."""

    command: str
    args: list[str] = field(default_factory=list)
    env: dict[str, str] | None = None
    cwd: str | Path | None = None
    encoding: str = "utf-8"
    encoding_error_handler: Literal["strict", "ignore", "replace"] = "strict"


class Lifeline:
    """Own end of the socket that keeps a server alive; closing it in any way ends the server."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        _lifelines.add(self)

    def cut(self) -> None:
        """Close the socket: the rest of the server is killed."""
        self.ours.close()
        self.theirs.close()


_lifelines: weakref.WeakSet[Lifeline] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A fork would keep the servers of its dead parent alive. Only our end: uvloop starts processes by a fork that comes
    # through here, and the other end is what such a child is to get.
    for lifeline in list(_lifelines):
        lifeline.ours.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def environment_of(parameters: ProcessParameters) -> dict[str, str]:
    """Return the server's environment: a few harmless variables of the program, and its own. The program's environment
    may hold keys, which the server must not see.
    """
    return get_default_environment() | (parameters.env or {})


def check_command(parameters: ProcessParameters) -> None:
    """Raise, with the remedy, if the program or folder does not exist: the child could only report that it failed."""
    if parameters.cwd is not None and not os.path.isdir(parameters.cwd):
        raise MCPServerError(
            f"there is no folder {str(parameters.cwd)!r} to start an MCP server in", "Correct params['cwd']."
        )
    path = environment_of(parameters).get("PATH")
    command = parameters.command
    if os.sep in command and parameters.cwd is not None:
        command = os.path.join(parameters.cwd, command)
    if shutil.which(command, path=path) is None:
        raise MCPServerError(
            f"there is no program {parameters.command!r} to start an MCP server with",
            "Correct params['command'], give its whole path, or put its folder into params['env']['PATH'].",
        )


@asynccontextmanager
async def process_streams(parameters: ProcessParameters) -> AsyncIterator[Any]:
    """Start the server and yield its streams; at the end of the block the server and all its children have ended.

    A server that exits, or does not speak MCP, ends the block with an error that says so.
    """
    check_command(parameters)
    process = await _Process.start(parameters)
    try:
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with incoming, read_stream, write_stream, outgoing, anyio.create_task_group() as tasks:
            tasks.start_soon(process.watch)
            tasks.start_soon(process.read_into, incoming)
            tasks.start_soon(process.write_from, outgoing)
            try:
                yield read_stream, write_stream
            finally:
                read_stream.close()  # no listener is left: further output is read and dropped
                write_stream.close()
                with anyio.CancelScope(shield=True):
                    await process.stop()
                tasks.cancel_scope.cancel()
    finally:
        # Not awaited, so that no cancellation can come between: whatever happened above, nothing outlives this.
        process.kill()


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """Streams of a child process, and an event for its end. `Process.wait` would also wait for the pipes, which a
    grandchild may hold open.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=CHUNK_BYTES, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        """Called by the loop when the process has been waited for."""
        super().process_exited()
        self.exited.set()


class _Process:
    """A running server, its guardian, and the tasks that read and write messages."""

    def __init__(
        self, parameters: ProcessParameters, lifeline: Lifeline, transport: asyncio.SubprocessTransport, pipes: _Pipes
    ) -> None:
        self._parameters, self._lifeline = parameters, lifeline
        self._transport, self._pipes = transport, pipes
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        self._input, self._output = pipes.stdin, pipes.stdout
        self._ended = asyncio.Event()
        self._exit_code: int | None = None
        self._is_stopping = False

    @classmethod
    async def start(cls, parameters: ProcessParameters) -> _Process:
        loop, lifeline = asyncio.get_running_loop(), Lifeline()
        # In a task of its own, which no cancellation reaches: asyncio would kill the guardian alone, and then wait for
        # pipes that the server, no longer guarded, may hold open for ever.
        starting = loop.create_task(
            loop.subprocess_exec(
                lambda: _Pipes(loop),
                sys.executable,
                "-I",
                "-S",
                str(GUARDIAN),
                str(lifeline.theirs.fileno()),
                parameters.command,
                *parameters.args,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None,
                env=environment_of(parameters),
                cwd=parameters.cwd,
                pass_fds=(lifeline.theirs.fileno(),),
                start_new_session=True,
            )
        )
        try:
            transport, pipes = await asyncio.shield(starting)
        except BaseException:
            lifeline.cut()
            starting.add_done_callback(_kill_started)
            with anyio.CancelScope(shield=True), anyio.move_on_after(TERMINATION_S_MAX):
                await _end_of(starting)
            raise
        lifeline.theirs.close()
        return cls(parameters, lifeline, transport, pipes)

    async def watch(self) -> None:
        """Note how the server ended, as soon as the guardian says so."""
        try:
            said = await asyncio.get_running_loop().sock_recv(self._lifeline.ours, 64)
        except OSError:
            said = b""  # closed by ourselves
        with suppress(ValueError):
            self._exit_code = int(said)
        self._ended.set()

    async def read_into(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Forward every message of the server."""
        try:
            await self._pass_on(incoming)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # No listener is left. A server with output to write could not end if its pipe were not read.
            while await self._output.read(CHUNK_BYTES):
                pass
        with anyio.move_on_after(TERMINATION_S_MAX):  # its output ended; in a moment we know how it did
            await self._ended.wait()
        if not self._is_stopping:
            raise MCPServerError(self._how_it_ended())

    async def _pass_on(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        garbage, lines = 0, _Lines(self._parameters)
        while chunk := await self._output.read(CHUNK_BYTES):
            for line in lines.split(chunk):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError as error:
                    garbage += 1
                    if garbage == 1:
                        logger.warning("MCP server %r printed what is no message", self._parameters.command)
                        await incoming.send(error)
                    elif garbage > GARBAGE_LINES_MAX:
                        raise MCPServerError(f"it sent {garbage} lines that are no messages") from None
                else:
                    garbage = 0
                    await incoming.send(SessionMessage(message))

    def _how_it_ended(self) -> str:
        match self._exit_code:
            case None:
                return "it closed its output"
            case 127:
                return "its process ended with exit code 127: its program, or one that it needs, was not found"
            case code if code < 0:
                return f"its process was ended by signal {-code}"
            case code:
                return f"its process ended with exit code {code}"

    async def write_from(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Pass on every message to the server."""
        pipe, how = self._input, self._parameters
        async for sent in outgoing:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            pipe.write(text.encode(how.encoding, how.encoding_error_handler))
            try:
                async with asyncio.timeout(WRITE_S_MAX):
                    await pipe.drain()
            except TimeoutError:
                raise MCPServerError(f"it read nothing for {WRITE_S_MAX:g} seconds") from None
            except OSError:
                return  # it has ended, or ends: the reader says how

    async def stop(self) -> None:
        """Let the server exit by itself, then terminate it, then kill it, within bounds."""
        self._is_stopping = True
        self._input.close()
        # Until the loop has waited for it, not until the guardian has spoken: the task that listens may be gone.
        exited = self._pipes.exited
        with anyio.move_on_after(EXIT_S_MAX):
            await exited.wait()
        if not exited.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGTERM)
            with anyio.move_on_after(TERMINATION_S_MAX):
                await exited.wait()
        self.kill()
        with anyio.move_on_after(TERMINATION_S_MAX):
            await exited.wait()

    def kill(self) -> None:
        """Kill all remaining processes at once."""
        self._lifeline.cut()
        _kill(self._transport)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    """Kill a guardian and all its children, and close their pipes."""
    if transport.get_returncode() is None:  # else the guardian is gone, and has done this
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    for number in (0, 1):  # not the transport itself: it would wait for the process in place of the loop
        if pipe := transport.get_pipe_transport(number):
            pipe.close()


def _kill_started(starting: asyncio.Task[tuple[asyncio.SubprocessTransport, _Pipes]]) -> None:
    """Kill a process whose caller has stopped waiting for its start."""
    if not starting.cancelled() and starting.exception() is None:
        _kill(starting.result()[0])


async def _end_of(starting: asyncio.Task[tuple[asyncio.SubprocessTransport, _Pipes]]) -> None:
    """Wait for the end of a process, if it was started."""
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result()[1].exited.wait()


class _Lines:
    """Decoder of bytes into lines of text; raises for an overlong line, and for bytes that are not text."""

    def __init__(self, parameters: ProcessParameters) -> None:
        self._encoding = parameters.encoding
        self._decoder = codecs.getincrementaldecoder(parameters.encoding)(parameters.encoding_error_handler)
        self._parts: list[str] = []
        self._length = 0

    def split(self, chunk: bytes) -> list[str]:
        """Return the lines that end in a chunk."""
        try:
            text = self._decoder.decode(chunk)
        except UnicodeDecodeError:
            raise MCPServerError(
                f"it sent bytes that are no {self._encoding}", "Look at params['encoding'] and encoding_error_handler."
            ) from None
        *ended, rest = text.split("\n")
        lines = []
        if ended:
            lines = ["".join((*self._parts, ended[0])), *ended[1:]]
            self._parts, self._length = [], 0
        if rest:
            self._parts.append(rest)
            self._length += len(rest)
        if self._length > MESSAGE_LENGTH_MAX:
            raise MCPServerError(f"it sent a message of more than {MESSAGE_LENGTH_MAX} characters")
        return [line for line in lines if line.strip()]
