"""Between a worker of ours and a cluster of Celery: what of it does not import Celery."""
