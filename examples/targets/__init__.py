"""API runs per target, for several tenants: see README.md beside this file."""
