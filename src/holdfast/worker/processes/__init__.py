"""Handlers in processes of their own, for CPU-bound work: `executor="process"`.

In the worker:

1. `pool` keeps children, gives each of them one attempt at a time, and stops or kills those that must stop.
2. `talk` is the conversation with a child about one attempt: order, log lines, new jobs, reports, answer.
3. `child` is one child as the worker sees it: started, signalled, killed, reaped. `launch` starts it.
4. `guard` tells the child's guard until when its lease lasts.

In the child, a fresh interpreter:

5. `entry` is its first code. It ties the child's life to the worker's, starts the guard, which ends the child with its
   lease if the worker cannot, and finds the worker's modules.
6. `inside` runs handlers in the main thread, one after the other; `line` is its end of the conversation; `interruption`
   lets the worker stop handlers; `context` is what handlers get. `leftovers` and `company` find what a handler has left
   behind.

Between them:

7. `frames` are JSON with their length in front, over a socket that only these two have. Nothing is pickled.
8. `addresses` say where a child finds a handler.
"""
