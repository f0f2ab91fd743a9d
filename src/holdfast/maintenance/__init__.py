"""What moves jobs that wait: a leader, and its duties. Every duty is correct with two leaders.

`leader` renews the term and judges by the answers whether the database was there all along (`patience`); `crew` gives
every duty a task of its own, so that none waits for another one that is slow or fails; `duties` has a module per duty.
"""
