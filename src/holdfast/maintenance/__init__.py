"""Moves waiting jobs: a leader and its duties. Every duty is correct with two leaders.

`leader` renews the term and judges by the answers whether the database was reachable all along (`patience`); `crew`
gives every duty its own task, so that none waits for another one that is slow or fails; `duties` has a module per duty.
"""
