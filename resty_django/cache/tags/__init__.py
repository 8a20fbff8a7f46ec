"""Tags of cached values, which invalidate many keys at once.

Each tag has a version, an item in L2. A record contains its tags and their versions from before its source was called,
and is valid as long as all versions are still the same. Invalidating a tag deletes its version; the next record with
the tag gets a new random one. So the cost does not depend on the number of records, and a lost version can only make
records invalid.
"""
