"""Handlers in processes of their own, for work that computes: `executor="process"`.

In the worker:

1. `pool` keeps children, hands each of them one attempt at a time, and stops or kills those that are to stop.
2. `talk` is the conversation with a child about one attempt: order, log lines, new jobs, reports, answer.
3. `child` is one child as the worker holds it: started, signalled, killed, reaped.
4. `guard` tells the child's guard until when its lease lasts.

In the child, a fresh interpreter:

5. `entry` is its first code: it ties the child's life to the worker's, starts the guard, which ends the child with
   its lease where the worker cannot, and finds the worker's modules.
6. `inside` runs handlers in the main thread, one after the other; `line` is its end of the conversation;
   `interruption` lets the worker stop them; `context` is what they get.

Between them:

7. `frames` are JSON with their length in front, over a socket that only these two have. Nothing is pickled.
8. `addresses` say where a child finds a handler.
"""
