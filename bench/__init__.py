"""Holdfast, the raw limits and its peers, measured side by side: `python -m bench`, or `make bench`."""
