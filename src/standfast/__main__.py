"""`python -m standfast`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

import sys

from ._kits.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
