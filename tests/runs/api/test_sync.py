"""Runs from code that has no event loop: scripts, notebooks, worker threads.

What concerns a whole process (Ctrl-C, what is left open at exit, a fork) is tried in a child process, with every
warning an error.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import children

from standfast import Agent, InMemorySession, Runner, SQLiteSession, function_tool
from standfast.testing import ScriptedModel, final, function_call

# Generous: they only end a child that hangs.
DEADLINE_S = 120


@function_tool
async def loop_id() -> str:
    """Which loop this is."""
    return str(id(asyncio.get_running_loop()))


def asking(count: int) -> Agent[Any]:
    """An agent that answers `count` runs, asking its tool in each."""
    steps = [
        step for n in range(count) for step in ([function_call("loop_id", "{}", call_id=f"c{n}")], final(f"answer {n}"))
    ]
    return Agent(name="clerk", model=ScriptedModel(steps), tools=[loop_id])


def loop_of(result: Any) -> str:
    return str(next(item.output for item in result.new_items if item.type == "tool_call_output_item"))


def test_two_runs_in_a_row_share_a_loop_and_a_conversation():
    """A client that opened a connection in the first run can use it in the second."""
    agent, session = asking(2), InMemorySession("s")
    first = Runner.run_sync(agent, "one", session=session)
    second = Runner.run_sync(agent, "two", session=session)
    assert (first.final_output, second.final_output) == ("answer 0", "answer 1")
    assert loop_of(first) == loop_of(second)
    assert [item.get("content") for item in second.input if item.get("role") == "user"] == ["one", "two"]


def test_a_run_that_failed_leaves_the_loop_to_the_next():
    agent = Agent(name="clerk", model=ScriptedModel([RuntimeError("no"), final("yes")]))
    with pytest.raises(RuntimeError, match="no"):
        Runner.run_sync(agent, "one")
    assert Runner.run_sync(agent, "two").final_output == "yes"


def test_threads_have_a_loop_each_and_close_it_when_they_end():
    """Both run at the same time, on one session; afterwards no thread and no loop is left."""
    session, together = InMemorySession("s"), threading.Barrier(2)
    before = set(threading.enumerate())

    def work(number: int) -> Any:
        together.wait(DEADLINE_S)
        result = Runner.run_sync(asking(1), f"from {number}", session=session)
        return loop_of(result), result.final_output

    with ThreadPoolExecutor(2) as pool:
        (first, said), (second, said_too) = pool.map(work, range(2))
    assert first != second
    assert said == said_too == "answer 0"
    stored = asyncio.run(session.get_items())
    questions = [item["content"] for item in stored if item.get("role") == "user"]
    assert sorted(questions) == ["from 0", "from 1"]
    assert len(stored) == 8  # a question, a call, its output and an answer, twice
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith(("Dummy", "standfast-close", "asyncio"))}


async def test_inside_a_running_loop_it_is_refused_and_says_what_to_use():
    with pytest.raises(RuntimeError, match=r"await Runner\.run"):
        Runner.run_sync(asking(1), "one")


def test_outside_a_loop_streaming_is_refused_and_says_what_to_do():
    with pytest.raises(RuntimeError, match="inside an async function"):
        Runner.run_streamed(asking(1), "one")


# --- whole processes -------------------------------------------------------------------------------------------------

PREAMBLE = """
import asyncio, logging, os, signal, sys, threading
from standfast import Agent, Runner, SQLiteSession, function_tool
from standfast.testing import ModelStep, ScriptedModel, final, function_call

# In development mode asyncio also tells of steps that took long: that the machine is busy is nothing left open.
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing"))
"""


def child(program: str, folder: Path) -> subprocess.Popen[str]:
    flags = ["-X", "dev", "-W", "error"]
    return children.program(PREAMBLE + textwrap.dedent(program), folder=folder, flags=flags, errors=True)


def run_child(program: str, folder: Path) -> str:
    started = child(program, folder)
    out, errors = started.communicate(timeout=DEADLINE_S)
    assert started.returncode == 0, errors
    assert errors == ""  # a warning about a loop, a task or a file that was left open would be here
    return out.strip()


def test_a_script_leaves_nothing_open(tmp_path: Path):
    """No ResourceWarning, no task that was never awaited: not for the main thread, not for one that ended."""
    program = """
        @function_tool
        async def in_a_thread() -> str:
            return await asyncio.to_thread(lambda: "done")  # starts the loop's own executor, too

        def once(number):
            steps = [[function_call("in_a_thread", "{}", call_id="c")], final(f"answer {number}")]
            agent = Agent(name="clerk", model=ScriptedModel(steps), tools=[in_a_thread])
            session = SQLiteSession(f"s{number}", "conversations.db")
            print(Runner.run_sync(agent, "hi", session=session).final_output)

        thread = threading.Thread(target=once, args=[1])
        thread.start()
        thread.join()
        print(threading.enumerate() == [threading.main_thread()] or [t.name for t in threading.enumerate()])
        once(2)
        once(3)
    """
    lines = run_child(program, tmp_path).splitlines()
    assert [line for line in lines if line.startswith("answer")] == ["answer 1", "answer 2", "answer 3"]
    assert "Dummy" not in lines[1]
    assert "standfast-close" not in lines[1]


def test_a_forked_child_uses_a_loop_of_its_own_and_leaves_its_parents_alone(tmp_path: Path):
    program = """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads

        @function_tool
        def word() -> str:
            return "sync tools come back through the loop's wake-up pipe"

        def once():
            steps = [[function_call("word", "{}", call_id="c")], final("answer")]
            agent = Agent(name="clerk", model=ScriptedModel(steps), tools=[word])
            return Runner.run_sync(agent, "hi").final_output

        assert once() == "answer"
        pid = os.fork()
        if pid == 0:
            os._exit(0 if once() == once() == "answer" else 1)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), once())
    """
    assert run_child(program, tmp_path) == "0 answer"


INTERRUPTED = """
    ran = []

    @function_tool
    async def book(table: int) -> str:
        ran.append(table)
        return f"booked {table}"

    @function_tool
    async def wait() -> str:
        print("ready", flush=True)
        await asyncio.Event().wait()

    steps = [
        [function_call("book", {"table": 4}, call_id="c1"), function_call("wait", "{}", call_id="c2")],
        final("There you are."),
    ]
    agent = Agent(name="clerk", model=ScriptedModel(steps), tools=[book, wait])
    session = SQLiteSession("guest", "conversations.db")
    try:
        Runner.run_sync(agent, "A table, please.", session=session)
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted", ran, flush=True)
    print(Runner.run_sync(agent, "And now?", session=session).final_output)
"""


def only_tells_of(call_id: str, errors: str) -> bool:
    """Whether operators got one line about the call that was cut, and at most one about the run that was settled."""
    cut, *more = errors.splitlines()
    is_settled = [line.startswith("run ") and ", was settled by run " in line for line in more]
    return cut.startswith(f"what became of call {call_id} of run ") and is_settled in ([], [True])


def test_ctrl_c_stops_a_run_in_order_and_the_session_can_be_used_at_once(tmp_path: Path):
    """What a tool did is in the history, the interrupted call has an output (C8), no lease is left (C14)."""
    started = child(INTERRUPTED, tmp_path)
    children.wait_for(started, "ready")
    started.send_signal(signal.SIGINT)
    out, errors = started.communicate(timeout=DEADLINE_S)
    assert started.returncode == 0
    assert only_tells_of("c2", errors)
    assert out.split("\n")[:2] == ["interrupted [4]", "There you are."]

    async def stored() -> list[Any]:
        session = SQLiteSession("guest", tmp_path / "conversations.db")
        try:
            return await session.get_items()
        finally:
            await session.close()

    items = asyncio.run(stored())
    outputs = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
    assert outputs["c1"] == "booked 4"
    assert "c2" in outputs
    kinds = [item.get("role") or item["type"] for item in items]
    assert kinds == [
        "user",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "user",
        "assistant",
    ]


def test_ctrl_c_while_a_sync_tool_is_stuck_in_its_thread_still_ends_the_program(tmp_path: Path):
    program = """
        @function_tool
        def stuck() -> str:
            os.write(1, b"ready\\n")  # print keeps a lock that Python's end needs until its thread is on
            threading.Event().wait()

        agent = Agent(name="clerk", model=ScriptedModel([[function_call("stuck", "{}", call_id="c")]]), tools=[stuck])
        try:
            Runner.run_sync(agent, "hi")
        except KeyboardInterrupt:
            print("interrupted")
    """
    started = child(program, tmp_path)
    children.wait_for(started, "ready")
    started.send_signal(signal.SIGINT)
    out, errors = started.communicate(timeout=DEADLINE_S)
    assert (started.returncode, out.strip()) == (0, "interrupted")
    assert only_tells_of("c", errors)


def test_ctrl_c_that_another_thread_receives_wakes_the_loop(tmp_path: Path):
    """A system may deliver a signal to any thread; the loop then went on waiting for its next event."""
    program = """
        def is_waiting_for_events():
            frame = sys._current_frames()[threading.main_thread().ident]
            return frame.f_code.co_name == "select"

        @function_tool
        def stuck() -> str:
            while not is_waiting_for_events():
                pass
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            threading.Event().wait()

        agent = Agent(name="clerk", model=ScriptedModel([[function_call("stuck", "{}", call_id="c")]]), tools=[stuck])
        try:
            Runner.run_sync(agent, "hi")
        except KeyboardInterrupt:
            print("interrupted", signal.set_wakeup_fd(-1))
    """
    started = child(program, tmp_path)
    out, errors = started.communicate(timeout=DEADLINE_S)
    assert (started.returncode, out.strip()) == (0, "interrupted -1")
    assert only_tells_of("c", errors)
