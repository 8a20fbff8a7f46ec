"""Hit and miss counts by cache and minute."""
