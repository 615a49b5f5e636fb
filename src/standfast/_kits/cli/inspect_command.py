"""`standfast inspect`: a page in the browser, over one store."""

from __future__ import annotations

import argparse
from pathlib import Path

from standfast._kits.cli.arguments import Commands, Parser, command, open_named_store, whoever
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE
from standfast._src.base.digits import whole_number
from standfast._src.base.extras import needed_by

PORT = 8642


def add(commands: Commands[Parser]) -> None:
    """Add `inspect`."""
    parser = command(
        commands,
        "inspect",
        inspect,
        "conversations, calls and costs on a page in the browser",
        description="Show conversations, calls and costs on a page in the browser, until Ctrl-C. Nothing is changed"
        " without --write.",
    )
    parser.set_defaults(waits=False)  # it serves until Ctrl-C
    parser.add_argument("--write", action="store_true", help="let the page decide, fork and undo")
    parser.add_argument("--by", metavar="NAME", help="who decides on the page; it is saved (else: you, on this host)")
    parser.add_argument("--port", type=_port, default=PORT, metavar="N", help=f"the port; 0: any that is free ({PORT})")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (this computer only)")
    parser.add_argument("--token-file", type=Path, metavar="PATH", help="a token of your own, in a file")
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="another name it is reached by, such as a proxy's"
    )


def _port(text: str) -> int:
    port = whole_number(text, below=65536)
    if port is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to 65535")
    return port


async def inspect(args: argparse.Namespace, out: Output) -> int:
    """Serve the page until the process is stopped."""
    with needed_by("standfast inspect"):
        from standfast._kits.inspector.server import bind_socket, rules_for, serve
    async with open_named_store(args, read_only=not args.write) as store:
        sock = bind_socket(args.host, args.port)
        try:
            port = sock.getsockname()[1]
            rules = rules_for(args.host, port, token_file=args.token_file, names=tuple(args.name), write=args.write)
            shown_host = f"[{args.host}]" if ":" in args.host else args.host
            # Behind `#` it stays in the browser: it is in no request, no log and no Referer header.
            address = f"http://{shown_host}:{port}/" + ("" if args.token_file else f"#token={rules.token}")

            def ready() -> None:
                if out.as_json:
                    out.record("standfast.inspector/1", {"address": address, "writes": args.write})
                else:
                    out.line(address)
                    out.note(
                        "This page can decide, fork and undo." if args.write else "Nothing is changed. Ctrl-C ends it."
                    )

            await serve(store, rules, sock, who=args.by or whoever(), ready=ready)
        finally:
            sock.close()
    return DONE
