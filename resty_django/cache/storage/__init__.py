"""The stored form of values: the records in L2, and L1."""
