# SPDX-License-Identifier: Apache-2.0
"""Functions that a condition may call.

All except `known` and `default` return UNKNOWN if a value that they need is UNKNOWN.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from nccltune.doctor.language.evaluation import UNKNOWN, Env, Run, Unsure
from nccltune.model.nccl_variables import is_default

_LISTED = 8


def format_value(value: Any) -> str:
    """Return a value as text: three significant digits, yes and no, at most 8 list members."""
    if value is UNKNOWN:
        return "unknown"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, tuple):
        return ".".join(str(part) for part in value)
    if isinstance(value, list):
        shown = [format_value(member) for member in value[:_LISTED]]
        more = len(value) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "") or "none"
    return str(value)


_VERSION = re.compile(r"\d+(?:\.\d+)*")


class Function(NamedTuple):
    """A function of the language.

    `make(arguments, constants)` compiles a call. `constants` holds the value of each argument that
    is a constant, and None for other arguments. `make` raises ValueError if the arguments are
    wrong. `keeps_kind` is true if the result has the type of the first argument. `needs` names the
    facts that the function reads.
    """

    make: Callable[[Sequence[Run], Sequence[Any]], Run]
    signature: str
    meaning: str
    keeps_kind: bool = False
    needs: tuple[str, ...] = ()


def _plain(function: Callable[..., Any]) -> Callable[..., Run]:
    """Return `make` for a Python function. A call is UNKNOWN if one argument is UNKNOWN."""

    def make(arguments: Sequence[Run], _constants: Sequence[Any]) -> Run:
        def run(env: Env) -> Any:
            values = [argument(env) for argument in arguments]
            return UNKNOWN if any(v is UNKNOWN for v in values) else function(*values)

        return run

    return make


def _looped(_arguments: Sequence[Run], _constants: Sequence[Any]) -> Run:
    """Refuse `any` and `all` of something else than a comprehension, which the compiler makes."""
    raise ValueError("takes a comprehension, such as any(g.numa == 0 for g in gpus)")


def _of_numbers(function: Callable[[list[Any]], Any]) -> Callable[..., Run]:
    """Return `make` for a function of one list.

    A call is UNKNOWN if the list or a member is UNKNOWN, or if `function` raises ValueError (min
    and max of an empty list).
    """

    def make(arguments: Sequence[Run], _constants: Sequence[Any]) -> Run:
        (argument,) = arguments

        def run(env: Env) -> Any:
            values = argument(env)
            if values is UNKNOWN or isinstance(values, Unsure):
                return UNKNOWN
            members = list(values)
            if any(member is UNKNOWN for member in members):
                return UNKNOWN
            try:
                return function(members)
            except ValueError:
                return UNKNOWN

        return run

    return make


def _pattern(constants: Sequence[Any], at: int, flags: int = 0) -> re.Pattern[str]:
    text = constants[at] if at < len(constants) else None
    if not isinstance(text, str):
        raise ValueError("a pattern is a text that stands there, not one that is made")
    return re.compile(text, flags)


def _match(arguments: Sequence[Run], constants: Sequence[Any]) -> Run:
    search, text = _pattern(constants, 0).search, arguments[1]

    def run(env: Env) -> Any:
        value = text(env)
        return UNKNOWN if value is UNKNOWN else search(value) is not None

    return run


def _group(arguments: Sequence[Run], constants: Sequence[Any]) -> Run:
    pattern, text = _pattern(constants, 0), arguments[1]

    def run(env: Env) -> Any:
        value = text(env)
        if value is UNKNOWN:
            return UNKNOWN
        found = pattern.search(value)
        return (found.group(1) or "") if found else ""

    return run


def _lines(arguments: Sequence[Run], constants: Sequence[Any]) -> Run:
    # With MULTILINE, anchors match at each line also in the joined text of all lines.
    records, search = arguments[0], _pattern(constants, 1, re.MULTILINE).search

    def run(env: Env) -> Any:
        values = records(env)
        if values is UNKNOWN:
            return UNKNOWN
        # Search the joined text first, because most patterns match no line. The text is cached per
        # list.
        key = id(values)
        text = env.lines.get(key)
        if text is None:
            text = env.lines[key] = "\n".join(value.get("text") or "" for value in values)
        if search(text) is None:
            return []
        return [value for value in values if search(value.get("text") or "")]

    return run


def _known(arguments: Sequence[Run], _constants: Sequence[Any]) -> Run:
    (argument,) = arguments

    def run(env: Env) -> Any:
        before = set(env.missing)
        value = argument(env)
        env.missing = before
        return value is not UNKNOWN

    return run


def _default(arguments: Sequence[Run], _constants: Sequence[Any]) -> Run:
    first, second = arguments

    def run(env: Env) -> Any:
        before = set(env.missing)
        value = first(env)
        if value is not UNKNOWN:
            return value
        env.missing = before
        return second(env)

    return run


def _setting(arguments: Sequence[Run], constants: Sequence[Any]) -> Run:
    name = constants[0]
    if not isinstance(name, str):
        raise ValueError("the name of a setting stands there as a text")
    other = arguments[1] if len(arguments) == 2 else None

    def run(env: Env) -> Any:
        settings = env.facts.get("settings")
        for record in settings or ():
            if record.get("name") == name and record.get("in_force"):
                return record.get("value", "")
        # Commands in a post count where they agree and none is told as what helped.
        named = [one for one in env.facts.get("named_settings") or () if one.get("name") == name]
        if {one.get("kind") for one in named} == {"post"} and not env.facts.get("log.workarounds"):
            values = {one.get("value", "") for one in named}
            return values.pop() if len(values) == 1 else UNKNOWN
        if settings is None:
            env.missing.add("settings")
            return UNKNOWN
        return other(env) if other is not None else None

    return run


def version_of(text: str) -> Any:
    """Return `2.28.9+cuda13.0` as (2, 28, 9), or UNKNOWN if the text has no number."""
    found = _VERSION.search(text)
    return tuple(int(part) for part in found.group().split(".")) if found else UNKNOWN


def _size(count: float) -> str:
    from nccltune.model.sizes import format_bytes

    return format_bytes(int(count))


def _text(*values: Any) -> str:
    return "".join(format_value(value) for value in values)


def _split(text: str) -> list[str]:
    return text.split()


def _distinct(values: list[Any]) -> list[Any]:
    return sorted(set(values))


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "any": Function(_looped, "any(x for y in list)", "one member is true"),
        "all": Function(_looped, "all(x for y in list)", "every member is true"),
        "len": Function(_of_numbers(len), "len(list)", "how many members"),
        "sum": Function(_of_numbers(sum), "sum(list)", "the members added"),
        "min": Function(_of_numbers(min), "min(list)", "the smallest member"),
        "max": Function(_of_numbers(max), "max(list)", "the largest member"),
        "distinct": Function(_of_numbers(_distinct), "distinct(list)", "each value once, sorted"),
        "match": Function(_match, "match('pattern', text)", "the pattern is in the text"),
        "group": Function(_group, "group('pa(tt)ern', text)", "what its group matched, or ''"),
        "lines": Function(
            _lines, "lines(log.lines, 'pattern')", "those with the pattern", keeps_kind=True
        ),
        "known": Function(_known, "known(x)", "x is known; nothing else asks for x then"),
        "default": Function(
            _default, "default(x, y)", "x, or y where x is not known", keeps_kind=True
        ),
        "setting": Function(
            _setting,
            "setting('NAME', default)",
            "its value in force; the default, or None, where nobody set it",
            needs=("settings",),
        ),
        "version": Function(_plain(version_of), "version('2.28.9')", "to compare versions"),
        "is_default": Function(_plain(is_default), "is_default(name, x, version)", "NCCL's own"),
        "lower": Function(_plain(str.lower), "lower(text)", "in lower case"),
        "text": Function(_plain(_text), "text(a, b, ...)", "one text of them all"),
        "split": Function(_plain(_split), "split(text)", "its words"),
        "size": Function(_plain(_size), "size(bytes)", "for people: 64 MiB"),
        "starts": Function(_plain(str.startswith), "starts(text, beginning)", "the text begins so"),
    }
)
"""All functions of the language, by name."""
