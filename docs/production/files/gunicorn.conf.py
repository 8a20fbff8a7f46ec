"""gunicorn reads this file in its working directory: `gunicorn mysite.wsgi`."""

import os

bind = os.environ.get("BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
threads = 4
preload_app = True  # workers share the memory of modules
timeout = 30  # a request that takes longer costs the worker
graceful_timeout = 30
worker_tmp_dir = "/dev/shm"  # heartbeats must not wait for a disk
control_socket_disable = True  # it would need a writable home
accesslog = "-"
access_log_format = '%(h)s "%(r)s" %(s)s %(b)s %(M)sms %({x-request-id}o)s'
