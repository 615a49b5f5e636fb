"""A conversation that holds, and a run that does: `./dev demo`.

The first half is `standfast demo` (`src/standfast/_kits/cli/demo.py`): a process that writes a conversation is killed
in
mid-write, and nothing is lost or doubled. In the second an agent is killed in the middle of its turn, and another
process finishes its run. Nothing here needs a key, a server or a network.
"""

from __future__ import annotations

import agent_demo

from standfast._kits.cli.entry import main as standfast


def main() -> None:
    code = standfast(["demo"])
    if code:
        raise SystemExit(code)
    print("\nAn agent with two tools is killed in the middle of its turn, and another process finishes its run.\n")
    agent_demo.main()


if __name__ == "__main__":
    main()
