"""How processes tell each other to drop values."""
