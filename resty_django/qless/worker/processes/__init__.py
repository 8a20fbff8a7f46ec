"""The pool "processes": each job runs in a separate process, which can be killed.

| module | part |
|---|---|
| `fork_server` | a process without threads that forks, signals, kills and reaps the processes of the jobs |
| `pool` | the worker's side: slots, each with a thread that sends jobs to its process and receives how they ended |
| `child` | the other side: the loop of a process that runs jobs, one at a time |
| `pipe` | messages between the two |
| `slot_memory` | interruptions, in memory that both sides share |

The worker keeps the leases and reports the ends of all jobs, so that a process may be killed at any time.
"""
