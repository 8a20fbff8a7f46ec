"""Parts of the bridge to Celery that do not import Celery."""
