"""The peer `limits` in a separate environment: `_limitspeer.py REDIS_URL`.

Prints the names of its subjects as JSON. Then reads lines, a name and a number of calls, and answers each with the
seconds that the calls took.
"""

from __future__ import annotations

import json
import sys
import timeit

from limits import RateLimitItemPerHour, storage, strategies

PLENTY = 10**9


def main(url: str) -> None:
    stores = {"memory": storage.MemoryStorage(), "Redis": storage.RedisStorage(url)}
    kinds = {
        "fixed window": strategies.FixedWindowRateLimiter,
        "sliding window": strategies.SlidingWindowCounterRateLimiter,
    }
    timers = {
        f"limits {kind}, {address}": timeit.Timer(
            "hit(item, 'user', 'k')", globals={"hit": limiter(store).hit, "item": RateLimitItemPerHour(PLENTY)}
        )
        for address, store in stores.items()
        for kind, limiter in kinds.items()
    }
    moving = strategies.MovingWindowRateLimiter(stores["Redis"]).hit
    timers["limits moving window, Redis"] = timeit.Timer(
        "hit(item, 'mover', 'k')", globals={"hit": moving, "item": RateLimitItemPerHour(200)}
    )
    print(json.dumps(list(timers)), flush=True)
    for line in sys.stdin:
        name, count = json.loads(line)
        print(timers[name].timeit(count), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
