"""Circuit breakers of the stores of caches, and what replaces a store while it is down."""
