"""The first jobs of several lists in Redis, merged: of all queues by urgency, of all failure groups by time.

Each is one call of a script on the server, whose cost is bounded by `MAX_READ` entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from resty_django.admin.tables import PAGE_SIZE

from ...clients.client import Client
from ...clients.serialization import text
from ...clients.transport import RedisCommand

MAX_MERGED: Final = 250
"""Maximum number of jobs in the merged order."""
MAX_READ: Final = 10_000
"""Maximum number of entries that a merge reads on the server."""

FIRST_MEMBERS_LUA: Final = """
-- KEYS: sorted sets. ARGV: command, first and last score, count. Reply: for each key, members and scores.
local replies = {}
for n, key in ipairs(KEYS) do
  replies[n] = redis.call(ARGV[1], key, ARGV[2], ARGV[3], 'WITHSCORES', 'LIMIT', 0, ARGV[4])
end
return replies
"""
MERGED_FAILURES_LUA: Final = """
-- KEYS: lists of failed jobs, newest first. ARGV: prefix of the jobs, count, index of the first job in a list (0, or -1
-- for oldest first). Reply: jids by the time of the failure. A job without a failure counts as the newest of its list.
local step, heads, jids = ARGV[3] == '0' and 1 or -1, {}, {}
local function head(key, index)
  local jid = redis.call('LINDEX', key, index)
  local failure = jid and redis.call('HGET', ARGV[1] .. jid, 'failure')
  local at = failure and tonumber(string.match(failure, '"when":%s*([%d.eE+]+)')) or 1e300
  return jid and {jid, step * at, index}
end
for n, key in ipairs(KEYS) do
  heads[n] = head(key, tonumber(ARGV[3]))
end
while #jids < tonumber(ARGV[2]) do
  local best
  for n = 1, #KEYS do
    if heads[n] and (not best or heads[n][2] > heads[best][2]) then
      best = n
    end
  end
  if not best then
    break
  end
  jids[#jids + 1] = heads[best][1]
  heads[best] = head(KEYS[best], heads[best][3] + step)
end
return jids
"""


def max_merged(lists: int) -> int:
    """Return how many jobs of `lists` lists can be merged: whole pages; 0 if there are too many lists."""
    return min(MAX_MERGED, MAX_READ // max(1, lists) // PAGE_SIZE * PAGE_SIZE)


def most_urgent(client: Client, state: str, queues: Sequence[str], count: int, reverse: bool = False) -> list[str]:
    """Return `count` jids in a state of all `queues`: in the order in which they run, lose their leases or were put.

    `reverse`: the least urgent ones first.
    """
    if not queues or count < 1:
        return []
    now = repr(client.clock())
    low, high = {"running": (f"({now}", "+inf"), "scheduled": (f"({now}", "+inf"), "stalled": ("-inf", now)}.get(
        state, ("-inf", "+inf")
    )
    descending = (state == "waiting") != reverse  # the score of a waiting job is its priority
    bounds = ("ZREVRANGEBYSCORE", high, low) if descending else ("ZRANGEBYSCORE", low, high)
    suffix = {"waiting": "work", "running": "locks", "stalled": "locks"}.get(state, state)
    keys = [f"{client.prefix}q:{queue}-{suffix}" for queue in queues]
    replies = _evaluate(client, FIRST_MEMBERS_LUA, keys, *bounds, count)
    lists = [
        [(float(score), text(jid)) for jid, score in zip(reply[::2], reply[1::2], strict=True)] for reply in replies
    ]
    merged = heapq.merge(*lists, key=itemgetter(0), reverse=descending)
    return [jid for (_score, jid), _number in zip(merged, range(count), strict=False)]


def latest_failed(client: Client, groups: Sequence[str], count: int, reverse: bool = False) -> list[str]:
    """Return `count` jids of all failure `groups`, the latest failure first; `reverse`: the earliest first."""
    if not groups or count < 1:
        return []
    keys = [f"{client.prefix}f:{group}" for group in groups]
    jids = _evaluate(client, MERGED_FAILURES_LUA, keys, f"{client.prefix}j:", count, -1 if reverse else 0)
    return [text(jid) for jid in jids]


def _evaluate(client: Client, script: str, keys: Sequence[str], *args: Any) -> Any:
    return client.perform(RedisCommand(("EVAL", script, len(keys), *keys, *args)))
