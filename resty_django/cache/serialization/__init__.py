"""Stored form of objects beyond the types of msgpack, without pickle.

An object is a msgpack extension: a code, and msgpack. Reading one never imports a module: in the process that reads, a
model must be installed, and a class must be registered.

| code | type | content |
|---|---|---|
| 1 | `Decimal` | text |
| 2, 3, 4 | `datetime`, `date`, `time` | ISO 8601, name of the time zone or nil, fold |
| 5 | `timedelta` | days, seconds, microseconds |
| 6 | `UUID` | 16 bytes |
| 7, 8, 9 | `tuple`, `set`, `frozenset` in the field of a model | the items |
| 10 | dataclass, msgspec `Struct` | name, fingerprint of its fields, the object as msgspec encodes it |
| 11 | model instance | label, fingerprint, alias of the database, whether it is unsaved, fields, values, annotations |
"""
