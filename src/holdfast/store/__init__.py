"""The only caller of SQL, and the only importer of the driver."""
