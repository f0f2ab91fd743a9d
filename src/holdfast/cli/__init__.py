"""The command line: a module per noun, and the few pieces that they share."""
