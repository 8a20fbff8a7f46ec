"""Celery-style tasks: decorator, schedules, retries, results."""
