"""The UDP server of the ID service."""
