"""The doctor: what is wrong with a store, what follows from it, and what to do; and mending with an undo."""
