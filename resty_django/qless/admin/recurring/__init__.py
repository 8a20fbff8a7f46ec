"""Recurring jobs and cron tasks."""
