"""Integrations: other task systems whose tasks run as jobs."""
