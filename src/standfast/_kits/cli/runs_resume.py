"""`standfast runs resume`: resume a saved run, with the agents of a named program."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import Commands, Parser, command, open_named_store, run_id_of, store_named
from standfast._kits.cli.formatting import when
from standfast._kits.cli.output import Output, json_text
from standfast._kits.cli.runs_show import RUN, run_fields
from standfast._kits.operators.exit_codes import DONE, BrokeOffError, UsageError
from standfast._kits.operators.suggested_commands import store_command
from standfast._src.agents.approvals import describe_arguments
from standfast._src.base.errors import StandfastError
from standfast._src.base.type_names import describe_type

if TYPE_CHECKING:
    from standfast._src.agents.agent import Agent


def add(commands: Commands[Parser]) -> None:
    """Add `resume`."""
    resume = command(commands, "resume", resume_run, "go on with a run, with the agents of your program", changes=True)
    resume.set_defaults(waits=False)  # its agent may write to the terminal, or ask at it
    resume.add_argument("run_id", metavar="RUN")
    resume.add_argument(
        "--agent", required=True, metavar="MODULE:NAME",
        help="the agent the run began with, or a function without arguments that makes it",
    )  # fmt: skip
    resume.add_argument(
        "--takeover", action="store_true", help="take a run whose worker is gone though no lease proves it"
    )


async def resume_run(args: argparse.Namespace, out: Output) -> int:
    """Claim a saved run and resume it, until it ends or waits again."""
    from standfast._src.runs.api.runner import Runner

    agent = await loaded_agent(args.agent)
    async with open_named_store(args, read_only=False) as store:
        view = await store.run(await run_id_of(store, args.run_id))
        if view.worker is not None and view.worker.state == "live":
            out.note(f"{view.worker.holder or 'a worker'} is at it since {when(view.worker.since)}: waiting for that")
        session = store.session(view.session_id or "-")
        where: dict[str, Any] = {"session": session} if view.session_id else {"run_store": session.run_store()}
        try:
            result = await Runner.resume(agent, view.run_id, takeover=args.takeover, **where)
        except (StandfastError, OSError):
            raise
        except Exception as error:  # of the program's own: a tool, a hook, a provider's library
            raise BrokeOffError(
                f"run {view.run_id!r} failed: {type(error).__name__}: {error}", "It is saved, and can be resumed again."
            ) from error
        finally:
            await session.close()
        after = await store.run(view.run_id)
    if out.as_json:
        out.record(RUN, run_fields(after))
        return DONE
    if after.waiting:
        for call in after.waiting:
            line = store_command("runs approve", store_named(args), after.run_id, call.call_id)
            out.line(f"waits for a decision: {call.tool} {'; '.join(describe_arguments(call))}")
            out.note(f"to decide: {line}   (or: reject … --say WHY)")
        return DONE
    output = result.final_output
    out.note(f"run {after.run_id} is {after.status}")
    if output is not None:
        out.text(output if isinstance(output, str) else json_text(after.output))
    return DONE


async def loaded_agent(named: str) -> Agent[Any]:
    """Return the agent named by MODULE:NAME, or made by the function of that name. The current folder comes first."""
    from standfast._src.agents.agent import Agent

    module_name, separator, attribute = named.partition(":")
    if not separator or not module_name or not attribute:
        raise UsageError(f"{named!r} names no agent", "Say where it is: --agent package.module:name.")
    here = os.getcwd()
    if here not in sys.path:  # as `python -m` does: an operator stands in the program's folder
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except Exception as error:
        raise UsageError(
            f"the module {module_name!r} cannot be imported ({type(error).__name__}: {error})",
            "Run it where the program runs, with its environment.",
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"the module {module_name!r} has no {attribute!r}", "Give the name of its agent.")
        found = getattr(found, part)
    if not isinstance(found, Agent) and callable(found):
        found = found()
        if inspect.isawaitable(found):
            found = await found
    if not isinstance(found, Agent):
        raise UsageError(f"{named!r} is {describe_type(found)} and no agent", "Give an Agent, or what makes one.")
    return found
