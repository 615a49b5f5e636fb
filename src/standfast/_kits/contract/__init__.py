"""Layer 2: every promise of the contract, as data; the kit tests it, the docs print it."""
