"""`standfast send`: send a message to a conversation in any state, without agents."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import Commands, Parser, command, open_named_store, whoever
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE, UsageError

if TYPE_CHECKING:
    from standfast._src.sessions.rules.messages import Receipt

RECEIPT = "standfast.receipt/1"


def add(commands: Commands[Parser]) -> None:
    """Add `send`."""
    parser = command(
        commands,
        "send",
        send,
        "send a message to a conversation in any state",
        changes=True,
        description="Send a message to a conversation. The run under way hears it before its next request; where none"
        " is, a worker that recovers runs begins it. Sent again under its id, it is not heard again.",
    )
    parser.add_argument("session_id", metavar="SESSION", help="the id of the conversation, in full; it may be new")
    parser.add_argument("text", metavar="TEXT", help="the message; - reads it from the standard input")
    parser.add_argument("--agent", required=True, metavar="NAME", help="the name of the agent that a worker begins")
    parser.add_argument("--id", dest="message_id", metavar="ID", help="the id of the message (else: a new one)")
    parser.add_argument(
        "--when-busy", choices=("steer", "queue", "interrupt", "reject"), default="steer",
        help="while a run is under way: be heard by it, wait for the next run, ask it to stop for this, or be refused"
        " (steer)",
    )  # fmt: skip
    parser.add_argument("--by", metavar="NAME", help="who sends it; it is saved (else: you, on this host)")


async def send(args: argparse.Namespace, out: Output) -> int:
    """Send the message and print its receipt."""
    text = sys.stdin.read() if args.text == "-" else args.text
    if not text.strip():
        raise UsageError("the message is empty", "Give its text, or - to read it from the standard input.")
    async with open_named_store(args, read_only=False) as store:
        receipt = await store.send(
            args.session_id, text, agent=args.agent, message_id=args.message_id, when_busy=args.when_busy,
            by=args.by or whoever(),
        )  # fmt: skip
    if out.as_json:
        out.record(RECEIPT, receipt_fields(receipt))
    else:
        out.line(f"message {receipt.message_id} {describe(receipt)}")
    return DONE


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """The fields of a receipt as JSON."""
    return {
        "message": receipt.message_id,
        "state": receipt.state,
        "run": receipt.run_id,
        "refused_by": receipt.refused_by,
        "is_new": receipt.is_new,
    }


def describe(receipt: Receipt) -> str:
    """Describe a receipt in words."""
    match receipt.state:
        case "waiting":
            return "waits for a run to hear it"
        case "heard":
            return f"was heard by run {receipt.run_id}"
        case "refused":
            return f"was refused by guardrail {receipt.refused_by}"
        case "running" | "done" | "failed":
            return f"is a run of its own, which is {receipt.state}"
        case state:
            return f"was {state}"
