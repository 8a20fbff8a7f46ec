"""The worked examples of the limiters: what must come out, call by call, at the given times.

Each table begins with an empty store. `true` and `false` are `commit`. A result is `pass` with a delay in seconds and
a second value, or `rejected`, or what the call returns.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
E1. req rate=2, burst=3: one request each 100 ms
0 | `incoming("k", true)` | pass | 0 | 0
100 | `incoming("k", true)` | pass | 0.4 | 0.8
200 | `incoming("k", true)` | pass | 0.8 | 1.6
300 | `incoming("k", true)` | pass | 1.2 | 2.4
400 | `incoming("k", true)` | rejected | - | -
500 | `incoming("k", true)` | pass | 1.5 | 3
600 | `incoming("k", true)` | rejected | - | -
700 | `incoming("k", true)` | rejected | - | -
800 | `incoming("k", true)` | rejected | - | -

E2. req rate=1, burst=0
0 | `incoming("k", true)` | pass | 0 | 0
0 | `incoming("k", true)` | rejected | - | -
999 | `incoming("k", true)` | rejected | - | -
1000 | `incoming("k", true)` | pass | 0 | 0
1001 | `incoming("k", true)` | rejected | - | -
2500 | `incoming("k", true)` | pass | 0 | 0
3000 | `incoming("k", true)` | rejected | - | -

E3. req rate=10, burst=2: simultaneous arrivals, then recovery
0 | `incoming("k", true)` | pass | 0 | 0
0 | `incoming("k", true)` | pass | 0.1 | 1
0 | `incoming("k", true)` | pass | 0.2 | 2
0 | `incoming("k", true)` | rejected | - | -
0 | `incoming("k", true)` | rejected | - | -
50 | `incoming("k", true)` | rejected | - | -
100 | `incoming("k", true)` | pass | 0.2 | 2
150 | `incoming("k", true)` | rejected | - | -
1000 | `incoming("k", true)` | pass | 0 | 0

E4. req rate=2, burst=3: dry run, uncommit, unknown key
0 | `incoming("k", false)` | pass | 0 | 0
0 | `incoming("k", true)` | pass | 0 | 0
100 | `incoming("k", false)` | pass | 0.4 | 0.8
100 | `incoming("k", false)` | pass | 0.4 | 0.8
100 | `incoming("k", true)` | pass | 0.4 | 0.8
100 | `uncommit("k")` | returns true | - | -
100 | `incoming("k", true)` | pass | 0.5 | 1
100 | `uncommit("k")` | returns true | - | -
100 | `uncommit("k")` | returns true | - | -
100 | `incoming("k", true)` | pass | 0.5 | 1
100 | `uncommit("other")` | not found | - | -

E5. req rate=2, burst=5: the clock goes back
1000 | `incoming("k", true)` | pass | 0 | 0
1000 | `incoming("k", true)` | pass | 0.5 | 1
1000 | `incoming("k", true)` | pass | 1 | 2
600 | `incoming("k", true)` | pass | 1.1 | 2.2
1000 | `incoming("k", true)` | pass | 1.2 | 2.4
1000 | `incoming("k", true)` | pass | 1.7 | 3.4

E6. req rate=0.125, burst=2: the stored excess loses its fraction of a milli-unit
0 | `incoming("k", true)` | pass | 0 | 0
3 | `incoming("k", true)` | pass | 7.997 | 0.999625
6 | `incoming("k", true)` | pass | 15.989 | 1.998625
7 | `incoming("k", true)` | rejected | - | -
10 | `incoming("k", true)` | rejected | - | -

E7. req: parameters changed on a live key (starts as rate=2, burst=1)
0 | `incoming("k", true)` | pass | 0 | 0
0 | `incoming("k", true)` | pass | 0.5 | 1
0 | `incoming("k", true)` | rejected | - | -
0 | `set_burst(3)` | (none) | - | -
0 | `incoming("k", true)` | pass | 1 | 2
0 | `incoming("k", true)` | pass | 1.5 | 3
0 | `set_rate(10)` | (none) | - | -
100 | `incoming("k", true)` | pass | 0.3 | 3
200 | `incoming("k", true)` | pass | 0.3 | 3

C1. count limit=3, window=10 s
0 | `incoming("k", true)` | pass | 0 | 2
2000 | `incoming("k", true)` | pass | 0 | 1
2500 | `incoming("k", false)` | pass | 0 | 0
3000 | `incoming("k", true)` | pass | 0 | 0
3500 | `incoming("k", false)` | rejected | - | -
4000 | `incoming("k", true)` | rejected | - | -
5000 | `incoming("k", true)` | rejected | - | -
5500 | `uncommit("k")` | returns -1 | - | -
5600 | `uncommit("k")` | returns 0 | - | -
5700 | `uncommit("k")` | returns 1 | - | -
5800 | `incoming("k", true)` | pass | 0 | 0
9999 | `incoming("k", true)` | rejected | - | -
10000 | `incoming("k", true)` | pass | 0 | 2
10001 | `incoming("k", true)` | pass | 0 | 1

C2. count limit=1, window=1 s: uncommit on an absent key creates nothing
0 | `uncommit("k")` | returns 1 | - | -
0 | `incoming("k", false)` | pass | 0 | 0
0 | `incoming("k", true)` | pass | 0 | 0
999 | `incoming("k", true)` | rejected | - | -
1000 | `incoming("k", true)` | pass | 0 | 0

N1. conn max=2, burst=3, default delay 0.5 s
0 | `incoming("k", true)` | pass | 0 | 1
1 | `incoming("k", true)` | pass | 0 | 2
2 | `incoming("k", true)` | pass | 0.5 | 3
3 | `incoming("k", true)` | pass | 0.5 | 4
3 | `incoming("k", false)` | pass | 1 | 5
4 | `incoming("k", true)` | pass | 1 | 5
4 | `is_committed()` | returns true | - | -
5 | `incoming("k", true)` | rejected | - | -
5 | `is_committed()` | returns false | - | -
6 | `leaving("k")` | returns 4 | - | -
7 | `leaving("k", 1.5)` | returns 3 | - | -
8 | `incoming("k", true)` | pass | 1 | 4
9 | `incoming("k", true)` | pass | 2 | 5
10 | `leaving("k", 0.1)` | returns 4 | - | -
11 | `incoming("k", true)` | pass | 1.1 | 5
12 | `incoming("k", false)` | rejected | - | -
12 | `is_committed()` | returns false | - | -

N2. conn: leaving or uncommit without a matching incoming
0 | `leaving("k", 9)` | not found | - | -
1 | `incoming("k", true)` | pass | 0 | 1
2 | `leaving("k")` | returns 0 | - | -
3 | `leaving("k")` | returns -1 | - | -
4 | `uncommit("k")` | returns -2 | - | -
5 | `incoming("k", true)` | pass | 0 | -1
6 | `incoming("k", true)` | pass | 0 | 0
7 | `incoming("k", true)` | pass | 0 | 1
8 | `incoming("k", true)` | rejected | - | -

R1. rate interval=500 ms, capacity=3, quantum=1, max_wait=700 ms
0 | `incoming("k", true)` | pass | 0 | 2
0 | `incoming("k", true)` | pass | 0 | 1
0 | `incoming("k", true)` | pass | 0 | 0
0 | `incoming("k", true)` | pass | 0.5 | -1
0 | `incoming("k", true)` | rejected | - | -
100 | `incoming("k", true)` | rejected | - | -
300 | `incoming("k", true)` | pass | 0.7 | -2
500 | `incoming("k", true)` | rejected | - | -
1200 | `incoming("k", true)` | pass | 0.3 | -1
2600 | `incoming("k", false)` | pass | 0 | 1
2600 | `incoming("k", true)` | pass | 0 | 1

R2. rate interval=100 ms, capacity=10, quantum=2, no max_wait
0 | `take("k", 8, true)` | pass | 0 | 2
0 | `take("k", 5, true)` | pass | 0.2 | -3
50 | `take("k", 1, true)` | pass | 0.15 | -4
250 | `take("k", 1, true)` | pass | 0.05 | -1
400 | `take_available("k", 4)` | returns 3 | - | -
500 | `take_available("k", 4)` | returns 2 | - | -
510 | `take_available("k", 4)` | returns 0 | - | -
510 | `uncommit("k")` | returns true | - | -
510 | `take_available("k", 4)` | returns 1 | - | -
5000 | `take_available("k", 50)` | returns 10 | - | -

R3. rate interval=1000 ms, capacity=2: the tick grid is fixed by the first committed call
0 | `incoming("k", true)` | pass | 0 | 1
900 | `incoming("k", true)` | pass | 0 | 0
950 | `incoming("k", true)` | pass | 0.05 | -1
1000 | `incoming("k", true)` | pass | 1 | -1
1999 | `incoming("k", true)` | pass | 1.001 | -2
2000 | `incoming("k", true)` | pass | 2 | -2

R4. rate interval=100 ms, capacity=5: the clock goes back
1000 | `take("k", 1, true)` | pass | 0 | 4
700 | `take("k", 1, true)` | pass | 0 | 0
1000 | `take("k", 1, true)` | pass | 0 | 2
"""
