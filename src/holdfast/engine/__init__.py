"""The turn engine: a run is data, and what should happen next is a function of that data. Pure, no I/O."""
