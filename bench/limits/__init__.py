"""The limits of the machine: what is possible with less than a job system, in the same run on the same server."""
