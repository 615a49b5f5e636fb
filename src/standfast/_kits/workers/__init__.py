"""For programs with a queue: runs as jobs of an engine that hands out work, retries it and stops it on deploy.

The adapters are modules of their own, each with its extra: `standfast.workers.procrastinate_queue` and
`standfast.workers.dbos_workflows`. What they share, for any other queue, is here.
"""

from standfast._kits.workers.jobs import JobEnd, RunJob, RunJobs, again_after_s

__all__ = ["JobEnd", "RunJob", "RunJobs", "again_after_s"]
