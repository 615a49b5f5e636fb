"""The doctor: faults of a store, their effects and remedies; and repairs with an undo."""
