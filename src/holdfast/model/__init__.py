"""Values without I/O: states, jobs, outcomes, retry policies and options."""
