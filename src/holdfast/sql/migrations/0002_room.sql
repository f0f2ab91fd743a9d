-- Room for all three versions of a plain job on its page, so that its updates stay heap-only even while an open
-- transaction keeps the older ones from being pruned.
alter table jobs set (fillfactor = 33);
