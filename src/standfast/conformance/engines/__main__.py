"""`python -m standfast.conformance.engines`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

import sys

from standfast._kits.conformance.engines.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
