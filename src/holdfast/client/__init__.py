"""All that a process may do that is not a worker: enqueue, browse, ask, wait."""
