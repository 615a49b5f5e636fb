# mypy: ignore-errors
"""How the databases beside this file were written: by release 0.1, under the name it had, and by openai-agents.

    <a Python with holdfast 0.1.0 and openai-agents> write.py

They are never written again. `expected.json` says what every read gave then, and must give for ever.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from agents.memory.sqlite_session import SQLiteSession as PeerSession
from holdfast import Agent, RunConfig, Runner, SQLiteSession, function_tool
from holdfast.engine.store import LogTail
from holdfast.sessions.protocol import Position
from holdfast.testing import ScriptedModel, function_call

FOLDER = Path(__file__).parent


def message(text):
    return {"role": "user", "content": text}


async def write_conversations(path):
    """Writers with many items, generations and undo, corrupt rows, foreign rows, clears, forks, leases."""
    long = SQLiteSession("long", path)
    sent = 0
    while sent < 100:  # more than one batch of digests
        batch = [message(f"long {number}") for number in range(sent, min(sent + 7, 100))]
        await long.append(batch, writer="run/long", start=sent)
        sent += len(batch)
    await long.append([message("other 0")], writer="other", start=0)
    await long.add_items([message("nobody's")])

    compacted = SQLiteSession("compacted", path)
    await compacted.append([message(f"c{number}") for number in range(6)], writer="run", start=0)
    await compacted.replace([message("summary 1")], upto=await compacted.head())
    await compacted.append([message("c6")], writer="run", start=6)
    await compacted.replace([message("summary 2")], upto=await compacted.head())
    await compacted.append([message("c7")], writer="run", start=7)
    await compacted.restore((await compacted.generations())[0].id)
    await compacted.add_items([message("after")])
    await compacted.fork("forked", at=Position(3))

    foreign = PeerSession("foreign", path)
    await foreign.add_items([message("peer 0"), message("peer 1")])
    ours = SQLiteSession("foreign", path)
    await ours.append([message("ours 0")], writer="run", start=0)
    await foreign.add_items([message("peer 2")])
    foreign.close()

    corrupt = SQLiteSession("corrupt", path)
    await corrupt.append([message("before")], writer="run", start=0)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('corrupt', '{broken')")
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('corrupt', CAST(x'ff7b7d' AS TEXT))")
    await corrupt.append([message("behind")], writer="run", start=1)

    cleared = SQLiteSession("cleared", path)
    await cleared.append([message("gone 0"), message("gone 1")], writer="run", start=0)
    await cleared.clear_session()
    await cleared.append([message("new")], writer="run", start=2)

    leased = SQLiteSession("leased", path)
    await leased.add_items([message("leased")])
    for _ in range(3):
        async with await leased.lease(ttl_s=60, wait_s=1):
            pass
    await (SQLiteSession("lapsed", path)).lease(ttl_s=0.01, wait_s=1)

    pair = SQLiteSession("pair", path, sessions_table="Chats", messages_table="Chat_lines")
    await pair.append([message("another table")], writer="run", start=0)
    await pair.replace([message("its summary")], upto=await pair.head())


async def write_runs(path):
    """Saved runs: paused, running, ended."""
    session = SQLiteSession("desk", path)

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = ScriptedModel([[function_call("pay", {"amount": 3}, call_id="call_pay")]])
    agent = Agent(name="clerk", model=model, tools=[pay])
    await Runner.run(agent, "Pay three.", session=session, run_config=RunConfig(run_id="paused"))
    store = session.run_store()
    tails = {"items": LogTail(0, [b"a", b"b"]), "calls": LogTail(0, [b"x"])}
    await store.save_run("running", expect=0, head=b"h1", tails=tails, status="running", agent="A", session_id="shop")
    await store.save_run("ended", expect=0, head=b"e1", tails=tails, status="running", agent="A", session_id="shop")
    await store.save_run(
        "ended", expect=1, head=b"e2", tails={"items": LogTail(1, [b"B", b"c"])}, status="done", agent="A",
        session_id="shop",
    )  # fmt: skip
    await store.save_run("alone", expect=0, head=b"\xff\x00|", tails={}, status="failed", agent="B")
    await store.save_run(
        "running", expect=1, head=b"h2", tails={"items": LogTail(2, [b"c"])}, status="running", agent="A",
        session_id="shop",
    )  # fmt: skip


async def read(path, **tables):
    """What every read gives."""
    some = SQLiteSession("-", path, **tables)
    listed = (await some.list_sessions(limit=100)).sessions
    found = {"order": [info.session_id for info in listed], "sessions": {}, "runs": {}}
    for info in listed:
        session = SQLiteSession(info.session_id, path, **tables)
        generations = await session.generations()
        lines = tables.get("messages_table", "agent_messages")
        with closing(sqlite3.connect(path)) as db:
            names = db.execute(
                f"SELECT writer FROM {lines}_holdfast_writers WHERE session_id = ?", (info.session_id,)
            ).fetchall()
            lease = db.execute(
                f"SELECT number FROM {lines}_holdfast_leases WHERE session_id = ?", (info.session_id,)
            ).fetchone()
        found["sessions"][info.session_id] = {
            "items": await session.get_items(),
            "created_at": info.created_at.isoformat(),
            "updated_at": info.updated_at.isoformat(),
            "corrupt": [record.data.hex() for record in await session.corrupt_records()],
            "generations": {one.id: await session.read_generation(one.id) for one in generations},
            "generation_times": [one.created_at.isoformat() for one in generations],
            "accepted": {name: await session.accepted(name) for (name,) in names},
            "written": {name: await session.written(name) for (name,) in names},
            "lease": lease[0] if lease else 0,
        }
        session.close()
    store = some.run_store()
    summaries, _ = await store.list_runs()
    found["run_order"] = [one.run_id for one in summaries]
    for one in summaries:
        run = await store.load_run(one.run_id)
        found["runs"][one.run_id] = {
            "status": one.status, "session_id": one.session_id, "agent": one.agent, "revision": run.revision,
            "head": run.head.hex(), "logs": {log: [r.hex() for r in records] for log, records in run.logs.items()},
            "created_at": one.created_at.isoformat(), "updated_at": one.updated_at.isoformat(),
        }  # fmt: skip
    some.close()
    return found


async def main():
    expected = {}
    pair = {"sessions_table": "Chats", "messages_table": "Chat_lines"}
    for name, write in (("conversations", write_conversations), ("runs", write_runs)):
        path = FOLDER / f"{name}.sqlite01"
        if path.exists():
            raise SystemExit(f"{path} is there: what a release wrote is never written again")
        await write(path)
        expected[name] = [{"tables": {}, **await read(path)}]
        if name == "conversations":
            expected[name].append({"tables": pair, **await read(path, **pair)})
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
