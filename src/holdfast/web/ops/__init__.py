"""The operators' side: everything about jobs, for those whose key says so."""
