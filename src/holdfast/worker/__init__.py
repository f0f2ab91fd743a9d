"""The worker runtime: intake → execution → settlement; a separate thread keeps the leases."""
