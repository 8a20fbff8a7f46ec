"""The UDP door of the ID service."""
