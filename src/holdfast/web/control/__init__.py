"""The control plane: what clients of jobs may do over HTTP."""
