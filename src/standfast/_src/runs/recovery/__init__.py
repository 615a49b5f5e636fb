"""Layer 4: runs of other processes: watched, resumed after a crash of their worker, handed over at a shutdown."""
