"""Services that run until they are told to stop, and the order in which they stop."""
