"""An agent that survives being killed: the second half of `./dev demo`.

A child process streams a run of an agent with two tools. The first has booked a seat, the second is under way, when the
process is killed with SIGKILL. This process then resumes the run by its id: what was done is not done again, what was
under way is settled as its tool declares, and the answer arrives. The model is scripted, so no key is needed; the
process, the kill, the tools' side effects and the database are real.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import ScriptedModel, assistant_message, function_call

RUN_ID = "trip-to-lisbon"


def make_agent(folder: Path, *, hang: bool) -> Agent:
    """The agent, with tools whose effects can be counted in files. In the killed process, mail never returns."""

    @function_tool
    def book_seat(train: str) -> str:
        """Book one seat. Running it twice would book two."""
        with (folder / "bookings").open("a") as ledger:
            ledger.write(f"{train}\n")
        return f"one seat on {train}"

    @function_tool(idempotent=True)  # the mail service drops a second mail with the same key, so it may be run again
    async def send_ticket(ctx: ToolContext, to: str) -> str:
        """Mail the ticket."""
        with (folder / "mails").open("a") as outbox:
            outbox.write(f"{ctx.idempotency_key}\n")
        if hang:
            while not (folder / "bookings").exists():  # noqa: ASYNC110 — a file of another thread is no event
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # the booking's result is being written down; a demo need not race it
            print("killed inside: send_ticket", flush=True)
            await asyncio.sleep(3600)
        return f"sent to {to}"

    calls = [
        function_call("book_seat", {"train": "IC 123"}, call_id="call-1"),
        function_call("send_ticket", {"to": "ada@example.org"}, call_id="call-2"),
    ]
    answer = assistant_message("You have one seat on IC 123; the ticket is in your mail.")
    # The resumed process asks the model only for what is still missing.
    steps = [calls, [answer]] if hang else [[answer]]
    tools = [book_seat, send_ticket]
    return Agent(name="Travel agent", instructions="Book and confirm.", tools=tools, model=ScriptedModel(steps))


async def run_and_be_killed(folder: Path) -> None:
    """The child: stream a run until somebody kills this process."""
    session = SQLiteSession("ada", folder / "trips.db")
    result = Runner.run_streamed(
        make_agent(folder, hang=True),
        "Book me a seat to Lisbon and mail me the ticket.",
        session=session,
        run_config=RunConfig(run_id=RUN_ID, tracing_disabled=True),
    )
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            print(f"streamed: {event.name}", flush=True)


async def finish(folder: Path) -> None:
    """The parent: resume by id and look at what happened."""
    session = SQLiteSession("ada", folder / "trips.db")
    before = await session.get_items()
    print(f"  in the history after the kill: {len(before)} items (a torn turn is never stored)")
    result = await Runner.resume(make_agent(folder, hang=False), RUN_ID, session=session)
    bookings = (folder / "bookings").read_text().split("\n")[:-1]
    mails = (folder / "mails").read_text().split()
    print(f"  resumed by its id: {result.final_output}")
    print(f"  seats booked: {len(bookings)} (done before the kill: not run again)")
    print(
        f"  mails asked for: {len(mails)}, all with one idempotency key: {len(set(mails)) == 1} (declared repeatable)"
    )
    kinds = [str(item.get("type") or item.get("role")) for item in await session.get_items()]
    print(f"  in the history now: {', '.join(kinds)}")
    assert len(bookings) == 1, "the seat was booked twice"
    assert len(set(mails)) == 1, "the mail service could not tell the repeat"
    expected = ["user", "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    assert kinds == expected, kinds
    session.close()


def main() -> None:
    """Run the child, kill it in the middle of its turn, and finish its run here."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = subprocess.Popen([sys.executable, __file__, name], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            print(f"  child {child.pid} {line.strip()}")
            if line.startswith("killed inside"):
                break
        child.kill()
        child.wait()
        asyncio.run(finish(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(run_and_be_killed(Path(sys.argv[1])))
    else:
        main()
