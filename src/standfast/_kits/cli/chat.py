"""`standfast chat`: talk to an agent in the terminal, with a conversation that outlives the terminal.

Every turn is a run on a session of the store. After any end of this process, `--continue` resumes: the conversation, a
call waiting for approval, or a turn that was cut off. The event loop of this program stops while a person types; no
lease is held then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVarTuple

from standfast._kits.cli.arguments import VARIABLE, Commands, Parser, command, deadline
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import BROKE_OFF, DONE, UsageError, ending_of
from standfast._src.agents.approvals import describe_arguments
from standfast._src.base.errors import NotFoundError, StandfastError
from standfast._src.base.safe_text import safe, safe_lines
from standfast._src.items.items import read

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store
    from standfast._src.agents.agent import Agent
    from standfast._src.agents.run_config import RunConfig
    from standfast._src.items.stream_events import StreamEvent
    from standfast._src.runs.api.run_state import RunState
    from standfast._src.runs.loop.streamed_result import RunResultStreaming
    from standfast._src.sessions.client.stored_session import StoredSession

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

STORE = "chats.db"
"""Where conversations are kept when no store is named: a file in the current folder."""
HELP = """/history         what was said
/undo            take the last turn back
/fork NAME       go on under another name; this conversation stays as it is
/sessions        the conversations of this store
/model NAME      another model from now on
/exit            leave (Ctrl-D does, too); --continue goes on later"""
NO_KEY = (
    "there is no key for a model: OPENAI_API_KEY is not set",
    "Set it; or talk to a server of your own with --base-url (Ollama: --base-url http://127.0.0.1:11434/v1 --model"
    " NAME); or run a model in this process with --local FILE.gguf; or try the rule-based agent with --demo, which"
    " needs nothing.",
)


def add(commands: Commands[Parser]) -> None:
    """Add `chat`."""
    parser = command(commands, "chat", chat, "talk to an agent in the terminal", store=False, changes=True)
    parser.add_argument("agent", nargs="?", metavar="MODULE:AGENT", help="an agent of yours (else a plain assistant)")
    parser.add_argument("--demo", action="store_true", help="a rule-based agent with tools; needs no key and no model")
    parser.add_argument("--model", "-m", metavar="NAME", help="the model to ask")
    parser.add_argument("--base-url", metavar="URL", help="a server that speaks OpenAI's protocol")
    parser.add_argument(
        "--local", nargs="?", const="", metavar="FILE.gguf", help="a model in this process (extra local)"
    )
    parser.add_argument("--store", dest="store", metavar="STORE", help=f"path or URL (else ${VARIABLE}, else {STORE})")
    parser.add_argument("--session", metavar="NAME", help="the conversation's name (else a new one)")
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="go on with the latest conversation")
    parser.add_argument("--timeout", type=deadline, default=30.0, metavar="S", help="seconds for each question (30)")


def chat(args: argparse.Namespace, out: Output) -> int:
    """Talk until the person leaves."""
    with suppress(ImportError):  # lines can be edited and called back where the platform has it
        import readline  # noqa: F401
    with asyncio.Runner() as loop:
        talk = loop.run(_open_chat(args, out))
        try:
            _talk(loop, talk, out)
        finally:
            loop.run(talk.close())
    return DONE


@dataclass
class TerminalChat:
    """A conversation in the terminal."""

    store: Store
    session: StoredSession
    agent: Agent[Any]
    provider: Any = None
    local: Any = None
    """The model that runs in this process, if one does."""
    unfinished: list[str] = field(default_factory=list)
    """Ids of runs that were cut off or wait, oldest first."""

    async def close(self) -> None:
        """Close opened resources."""
        await self.session.close()
        await self.store.close()


async def _open_chat(args: argparse.Namespace, out: Output) -> TerminalChat:
    from standfast._kits.operators.open_store import open_store

    if args.session and args.goes_on:
        raise UsageError("--session and --continue name two conversations", "Give one of them.")
    agent, provider, local = await _agent(args)
    store = open_store(args.store or os.environ.get(VARIABLE) or STORE, create=True, timeout_s=args.timeout)
    try:
        await store.layout()
        name = args.session or datetime.now().strftime("chat-%Y-%m-%d-%H%M%S")
        if args.goes_on:
            name = await _latest(store)
        session = store.session(name)
        listed = (await store.runs(session_id=name, limit=20)).runs
        unfinished = [run.run_id for run in reversed(listed) if run.status in ("running", "paused", "ready")]
    except BaseException:
        await store.close()
        raise
    out.note(f"Conversation {name!r} in {store.url}, with {agent.name}. /help lists commands; Ctrl-D leaves.")
    return TerminalChat(store, session, agent, provider, local, unfinished)


async def _latest(store: Store) -> str:
    """Return the last changed conversation; if its first turn was cut off, it has a run and no items yet."""
    known = [(one.updated_at, one.session_id) for one in (await store.sessions(limit=1, details=False)).sessions]
    known += [(run.updated_at, run.session_id) for run in (await store.runs(limit=20)).runs if run.session_id]
    if not known:
        raise NotFoundError(
            "there is no conversation in this store to go on with",
            "Leave --continue out. A question whose first answer was cut off is not stored: ask it again.",
        )
    return max(known)[1]


async def _agent(args: argparse.Namespace) -> tuple[Agent[Any], Any, Any]:
    """Return the agent, its model provider (None: from its own settings), and the local model."""
    from standfast._kits.cli.runs_resume import loaded_agent
    from standfast._src.agents.agent import Agent

    if args.demo:
        if args.agent or args.model or args.base_url or args.local is not None:
            raise UsageError(
                "--demo brings an agent of its own", "Leave the agent, --model, --base-url and --local out."
            )
        from standfast._kits.cli.demo_agent import demo_agent

        return demo_agent(), None, None
    if args.local is not None and (args.model or args.base_url):
        raise UsageError("--local brings a model of its own", "Leave --model and --base-url out.")
    provider = local = None
    if args.local is not None:
        from standfast._kits.cli import local_model
        from standfast._src.models.providers.provider import OpenAIProvider

        local = local_model.start(local_model.weights(args.local))
        provider = OpenAIProvider(base_url=local.base_url, api_key=local.key, use_responses=False)
    elif args.base_url:
        from standfast._src.models.providers.provider import OpenAIProvider

        # Servers of one's own mostly speak the older protocol, and want any key.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        provider = OpenAIProvider(base_url=args.base_url, api_key=key, use_responses=False)
    elif not args.agent and not os.environ.get("OPENAI_API_KEY"):
        raise UsageError(*NO_KEY)
    agent: Agent[Any] = (
        await loaded_agent(args.agent)
        if args.agent
        else Agent(name="Assistant", instructions="You are a helpful assistant. Answer briefly.")
    )
    model = args.model if local is None else local.name
    return (agent.clone(model=model) if model else agent), provider, local


# --- the loop --------------------------------------------------------------------------------------------------------


def _talk(loop: asyncio.Runner, talk: TerminalChat, out: Output) -> None:
    while talk.unfinished:
        run_id = talk.unfinished.pop(0)
        out.note(f"Run {run_id} was not finished; going on with it.")
        if not _try_step(out, _goes_on, loop, talk, out, run_id):
            break
    while (line := _ask(out, "> ")) is not None and line not in ("/exit", "/quit"):
        if line.startswith("/"):
            _try_step(out, _command, loop, talk, out, line)
        elif line:
            _try_step(out, _turn, loop, talk, out, line)


def _try_step(out: Output, step: Callable[[*Ts], object], *given: *Ts) -> bool:
    """Do one step and print its error, if any: the talk continues. Return True without an error."""
    try:
        step(*given)
    except (EOFError, KeyboardInterrupt):
        out.note("Stopped. What was stored so far is kept.")
    except (StandfastError, OSError, ImportError) as error:
        out.report_failure(*ending_of(error))
    except Exception as error:  # of a provider's library, a tool or a hook: not ours to explain
        out.report_failure(BROKE_OFF, f"the turn failed: {type(error).__name__}: {error}", "What was stored is kept.")
    else:
        return True
    return False


def _ask(out: Output, question: str) -> str | None:
    """A line from the person; None when there will be no more."""
    try:
        return input(question if out.is_terminal else "").strip()
    except (EOFError, KeyboardInterrupt):
        if out.is_terminal:
            out.line()
        return None


def _turn(loop: asyncio.Runner, talk: TerminalChat, out: Output, given: str | RunState[Any]) -> None:
    """Do one turn: print the answer as it arrives, and ask about each call that needs a person."""
    from standfast._src.runs.api.runner import Runner

    while True:
        settings = _settings(talk)
        result = loop.run(
            _run_and_show(Runner.run_streamed, talk.agent, given, session=talk.session, run_config=settings)
        )
        if result is None or not result.interruptions:
            return
        given = state = result.to_state()
        _decide(state, out)


def _goes_on(loop: asyncio.Runner, talk: TerminalChat, out: Output, run_id: str) -> None:
    """Finish a run left by an earlier process: decide about its waiting calls, and resume it."""
    from standfast._src.runs.api.runner import Runner

    state = loop.run(Runner.load(talk.agent, run_id, session=talk.session))
    if state.get_interruptions():
        _decide(state, out)
        _turn(loop, talk, out, state)
        return
    result = loop.run(
        _run_and_show(Runner.resume_streamed, talk.agent, run_id, session=talk.session, run_config=_settings(talk))
    )
    if result is not None and result.interruptions:
        state = result.to_state()
        _decide(state, out)
        _turn(loop, talk, out, state)


def _settings(talk: TerminalChat) -> RunConfig:
    from standfast._src.agents.run_config import RunConfig

    return RunConfig(model_provider=talk.provider) if talk.provider is not None else RunConfig()


def _decide(state: RunState[Any], out: Output) -> None:
    """Ask about each waiting call. Any answer but a clear yes rejects it; leaving keeps the question for later."""
    for call in state.get_interruptions():
        what = "may have run before a crash" if call.reason == "unknown" else "needs your approval"
        out.line(f"[{call.tool_name} {'; '.join(describe_arguments(call))} {what}]")
        answer = _ask(out, "run it? y(es), n(o), a(lways), or say why not: ")
        if answer is None:
            raise EOFError
        match answer.lower():
            case "y" | "yes":
                state.approve(call)
            case "a" | "always":
                state.approve(call, always_approve=True)
            case "" | "n" | "no":
                state.reject(call)
            case _:
                state.reject(call, rejection_message=answer)


async def _run_and_show(
    start: Callable[P, RunResultStreaming | Awaitable[RunResultStreaming]], *given: P.args, **options: P.kwargs
) -> RunResultStreaming:
    """Start a streamed run and show it. The first Ctrl-C stops the turn in order; the second leaves with None."""
    import inspect

    started = start(*given, **options)
    result: RunResultStreaming = await started if inspect.isawaitable(started) else started
    here = asyncio.current_task()
    assert here is not None
    was_stopped = False

    def stop() -> None:
        nonlocal was_stopped
        if was_stopped:
            here.cancel()
        was_stopped = True
        result.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    shown = _Shown()
    try:
        async for event in result.stream_events():
            shown.event(event)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        shown.end()
        loop.remove_signal_handler(signal.SIGINT)
    if was_stopped:
        raise KeyboardInterrupt
    return result


class _Shown:
    """Display of a stream of events in a terminal: words as they arrive, calls and their outputs on lines."""

    def __init__(self) -> None:
        self._in_line = False

    def event(self, event: StreamEvent) -> None:
        """Show one event."""
        match event.type:
            case "raw_response_event" if read(event.data, "type") == "response.output_text.delta":
                self._write("\n".join(safe_lines(str(read(event.data, "delta")))))
                self._in_line = True
            case "run_item_stream_event" if event.item.type == "tool_call_item":
                arguments = read(event.item.raw_item, "arguments") or read(event.item.raw_item, "input") or ""
                self._line(f"[{event.item.tool_name} {arguments}]")
            case "run_item_stream_event" if event.item.type == "tool_call_output_item":
                self._line(f"[→ {event.item.output}]")
            case "run_item_stream_event" if event.item.type == "handoff_output_item":
                self._line(f"[{event.item.target_agent.name} goes on]")

    def end(self) -> None:
        """End the line of words."""
        if self._in_line:
            self._write("\n")
            self._in_line = False

    def _line(self, text: str) -> None:
        self.end()
        self._write(safe(text) + "\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


# --- commands --------------------------------------------------------------------------------------------------------


def _command(loop: asyncio.Runner, talk: TerminalChat, out: Output, line: str) -> None:
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    match word:
        case "/help":
            out.text(HELP)
        case "/history":
            loop.run(_history(talk, out))
        case "/undo":
            loop.run(_undo(talk, out))
        case "/fork" if rest:
            loop.run(_fork(talk, out, rest))
        case "/sessions":
            loop.run(_sessions(talk, out))
        case "/model" if rest:
            talk.agent = talk.agent.clone(model=rest)
            out.note(f"The next answer comes from {rest}.")
        case _:
            raise UsageError(f"{line!r} is no command", "/help lists them.")


async def _history(talk: TerminalChat, out: Output) -> None:
    from standfast._kits.cli.formatting import speaker, words_in
    from standfast._kits.operators.suggested_commands import store_command

    page = await talk.session.records(limit=200)
    if page.before is not None:
        line = store_command("sessions show", talk.store.url, talk.session.session_id)
        out.note(f"The latest 200 items; this shows all: {line}")
    for record in page.records:
        out.text(f"{speaker(record.item)}: {words_in(record.item, record.fault)}")


async def _undo(talk: TerminalChat, out: Output) -> None:
    """Remove the last run's items, in one step; foreign items are removed one by one."""
    page = await talk.session.records(limit=1)
    if not page.records:
        out.note("There is nothing to take back.")
        return
    writer = page.records[0].writer
    if writer is None:
        await talk.session.pop_item()
        out.note("Took the last item back.")
    else:
        await talk.session.rewind(writer=writer, to=0)
        out.note("Took the last turn back.")


async def _fork(talk: TerminalChat, out: Output, name: str) -> None:
    from standfast._kits.cli.arguments import whoever

    forked = await talk.session.fork(name, by=whoever())
    await talk.session.close()
    talk.session = forked
    out.note(f"This goes on as {name!r}; the conversation it came from stays as it is.")


async def _sessions(talk: TerminalChat, out: Output) -> None:
    for one in (await talk.store.sessions(limit=20)).sessions:
        here = "*" if one.session_id == talk.session.session_id else " "
        out.line(f"{here} {one.session_id}  {one.item_count} items  {one.first_words or ''}")
