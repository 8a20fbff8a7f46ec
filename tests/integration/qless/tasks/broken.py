"""A module of tasks that cannot be imported."""

raise RuntimeError("broken on purpose")
