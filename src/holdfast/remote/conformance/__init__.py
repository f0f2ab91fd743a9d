"""The conformance test of remote workers: it plays the server, makes trouble, and says what a worker did wrong.

`listening` speaks as much HTTP as that takes. `stage` speaks the worker protocol, keeps jobs in memory, and notes what
no worker may do. `trials` has the trouble, one situation each. `judging` starts the worker, and tries all of them.
`holdfast conform` is its face, and `docs/protocol.md` describes it.
"""
