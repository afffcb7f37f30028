# SPDX-License-Identifier: Apache-2.0
"""Run comprehensions, and `any` and `all`, which stop as soon as the result is known."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nccltune.doctor.language.evaluation import TOO_MANY, UNKNOWN, Env, Run, Unsure, truth


class Loop(NamedTuple):
    """`for variable in over if filters`. Nested loops have different variables."""

    variable: str
    over: Run
    filters: Sequence[Run]


_SURE, _UNSURE, _LOST, _STOPPED = range(4)
"""Results of the loops.

- _SURE: every filter was decided.
- _UNSURE: a filter was UNKNOWN for some members, or a list may lack members.
- _LOST: a list is UNKNOWN, or the limit STEPS is exceeded.
- _STOPPED: the function `visit`, called for each member, stopped the loops.
"""


def collecting(loops: Sequence[Loop], element: Run) -> Run:
    """Return a compiled list comprehension.

    The list is Unsure if it may lack members, because a filter was UNKNOWN or a list of a loop is
    Unsure. The result is UNKNOWN if a list of a loop is UNKNOWN or the limit STEPS is exceeded.
    """

    def run(env: Env) -> Any:
        found: list[Any] = []

        def visit() -> bool:
            found.append(element(env))
            return False

        end = _walk(env, loops, 0, visit)
        if end == _LOST:
            return UNKNOWN
        return found if end == _SURE else Unsure(found)

    return run


def deciding(loops: Sequence[Loop], element: Run, ends: bool) -> Run:
    """Return a compiled `any` (stops at True) or `all` (stops at False) in Kleene's logic.

    `ends` is the value that stops the loops.
    """

    def run(env: Env) -> Any:
        known = True

        def visit() -> bool:
            nonlocal known
            value = truth(element(env))
            if value is UNKNOWN:
                known = False
            return value is ends

        end = _walk(env, loops, 0, visit)
        if end == _STOPPED:
            return ends
        return not ends if end == _SURE and known else UNKNOWN

    return run


def _walk(env: Env, loops: Sequence[Loop], at: int, visit: Callable[[], bool]) -> int:
    variable, over, filters = loops[at]
    values = over(env)
    if values is UNKNOWN:
        return _LOST
    end = _UNSURE if isinstance(values, Unsure) else _SURE
    is_last = at + 1 == len(loops)
    for value in values:
        env.names[variable] = value
        env.steps -= 1
        if env.steps < 0:
            env.missing.add(TOO_MANY)
            return _LOST
        kept = _kept(env, filters)
        if kept is UNKNOWN:
            end = _UNSURE
        elif kept:
            if is_last:
                if visit():
                    return _STOPPED
                continue
            below = _walk(env, loops, at + 1, visit)
            if below in (_LOST, _STOPPED):
                return below
            end = max(end, below)
    return end


def _kept(env: Env, filters: Sequence[Run]) -> Any:
    kept: Any = True
    for test in filters:
        decided = truth(test(env))
        if decided is False:
            return False
        if decided is UNKNOWN:
            kept = UNKNOWN
    return kept
