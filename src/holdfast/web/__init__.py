"""The HTTP face: a server, its problems, and the control plane. Needs the extra `server`."""
