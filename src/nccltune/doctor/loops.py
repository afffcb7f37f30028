# SPDX-License-Identifier: Apache-2.0
"""Loops of a condition: comprehensions, and any and all, which end as soon as they can."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nccltune.doctor.unknown import TOO_MANY, UNKNOWN, Env, Run, Unsure, truth


class Loop(NamedTuple):
    """`for variable in over if filters`; no two loops in each other have the same variable."""

    variable: str
    over: Run
    filters: Sequence[Run]


_SURE, _UNSURE, _LOST, _STOPPED = range(4)
"""How a walk ended: all members decided; a filter undecided for some; what is looped over not
known (or too long); the visitor had enough."""


def collecting(loops: Sequence[Loop], element: Run) -> Run:
    """The list of what `element` gives; Unsure where a filter could not be decided."""

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
    """`any` of `element` (ends at a True) or `all` (ends at a False) in Kleene's logic."""

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
