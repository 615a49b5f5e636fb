"""`python -m standfast` is the command `standfast`."""

from __future__ import annotations

from standfast.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
