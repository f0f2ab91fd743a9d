"""The worker runtime: intake → execution → settlement, with leases kept from a thread of their own."""
