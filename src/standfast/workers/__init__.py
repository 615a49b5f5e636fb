"""For programs with a queue: runs as jobs of an engine that hands out work, retries it and stops it on deploy."""
