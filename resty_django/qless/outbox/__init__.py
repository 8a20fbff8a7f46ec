"""The outbox: calls that enqueue jobs are rows in the site's database first, in the transaction of the caller.

So a committed order has its job, also if Redis is down, and one that is rolled back has none. The steps of a row:

| step | by | module |
|---|---|---|
| it is written | the caller of `delay`, in its transaction | `entries` |
| its commands are sent | the same process after the commit, if Redis answers | `outbox` |
| it is claimed, its commands are sent | else a worker or `manage.py qless_outbox`, 10 seconds later | `delivery` |
| it is marked as delivered | the sender; the owner marks many rows at once | `delivery` |
| it is deleted, after KEEP | a worker or `manage.py qless_outbox` | `delivery` |

Any process may send a row again at any time, as the core carries out each command of a row once (`once`). So no step
needs to be exact: a claim only avoids work that is done twice, and a process may die between any two steps.

See docs/reference/jobs/outbox.md.
"""
