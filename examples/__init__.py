"""Services built with Holdfast, to read and to copy."""
