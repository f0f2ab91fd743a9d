"""The engine: migrations, functions and named reads, as data."""
