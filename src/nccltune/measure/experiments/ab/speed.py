# SPDX-License-Identifier: Apache-2.0
"""Read how fast a training script is from what it prints.

Values before the job is warm are left out: the first fifth of those of each start, at least one.
The value of a start is the median of the others.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.model.errors import InputError

WALL = "wall time"
_WARM_UP = 0.2
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LINE_END = re.compile(r"[\r\n]+")
_LONGEST_LINE = 4096
"""Characters of a line that are searched."""
_SHOWN = 100
"""Characters of a line that a hint shows."""


class Metric(NamedTuple):
    """What a line of output states: `name` in the words of the program.

    The group `time` of `pattern` is a time, any other group is a rate. With `is_whole` the number
    is of the whole run, with its warm-up.
    """

    name: str
    pattern: re.Pattern[str]
    is_whole: bool = False

    @property
    def is_time(self) -> bool:
        """Return whether all its numbers are times: smaller is faster."""
        return "time" in self.pattern.groupindex and self.pattern.groups == 1


# Bounded, and not from within a number: a line may hold an array of thousands of digits.
_NUMBER = r"(?<![0-9.,])[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,3})?"
_RATE, _TIME = rf"({_NUMBER})", rf"(?P<time>{_NUMBER})"
_IS = r"[\"']?\s*[:=]?\s*"
_A_SECOND = r"[ _]?(?:/|per)[ _]?s(?:ec(?:ond)?)?"
_TOKENS, _SAMPLES = r"tok(?:en)?s?", r"(?:samples?|images?|imgs?|sequences?)"
METRICS = tuple(
    Metric(name, re.compile(pattern, re.IGNORECASE), is_whole=name.startswith("train_"))
    for name, pattern in (
        # megatron-core
        (
            "iteration time (ms)",
            rf"(?:elapsed time per iteration|iteration[ _]time) ?\(ms\){_IS}{_TIME}",
        ),
        # torchtitan
        ("tokens/s (tps)", rf"\btps{_IS}{_RATE}"),
        ("tokens/s", rf"\b{_TOKENS}{_A_SECOND}(?:/(?:gpu|device))?{_IS}{_RATE}"),
        ("tokens/s", rf"{_RATE}\s*{_TOKENS}{_A_SECOND}\b"),
        # DeepSpeed
        ("samples/s (current)", rf"\bCurrSamplesPerSec{_IS}{_RATE}"),
        # the trainer of Hugging Face's transformers, once at the end
        ("train_steps_per_second", rf"\btrain_steps_per_second{_IS}{_RATE}"),
        ("steps/s", rf"\b(?:steps?|iter(?:ation)?s?){_A_SECOND}{_IS}{_RATE}"),
        ("steps/s", rf"{_RATE}\s*(?:steps?|iter(?:ation)?s?){_A_SECOND}\b"),
        ("samples/s", rf"\b{_SAMPLES}{_A_SECOND}{_IS}{_RATE}"),
        ("samples/s", rf"{_RATE}\s*{_SAMPLES}{_A_SECOND}\b"),
        ("step time", rf"\b(?:step|iter(?:ation)?)[ _]?time(?:[ _]?\(m?s\))?{_IS}{_TIME}"),
        ("time (ms)", rf"\btime{_IS}{_TIME}\s*ms\b"),
        # tqdm prints seconds an iteration where one takes longer than a second
        ("it/s", rf"(?:{_TIME}\s*s/it|{_RATE}\s*it/s)\b"),
    )
)
"""Forms of common programs. The first one that a program prints is used."""


class UnreadSpeedError(InputError):
    """A start of a job printed no speed, or another one than the starts before it."""


class JobSpeed(msgspec.Struct, frozen=True):
    """How fast one start of a job was.

    - `metric`: what was read
    - `speed`: proportional to steps a second; for a time it is 1 over the time
    - `values`, `left_out`: the number of values, and how many at the beginning do not count
    - `rounding`: how far the printed number may be from the true one, relative to it
    """

    metric: str
    speed: float
    values: int = 1
    left_out: int = 0
    is_time: bool = False
    rounding: float = 0.0

    @property
    def value(self) -> float:
        """Return the value as the program states it."""
        return 1 / self.speed if self.is_time else self.speed


def user_metric(expression: str) -> Metric:
    """Return the metric of a regular expression: its first group is a rate.

    If a group is named `time`, that is a time. Raises InputError for an expression without a group.
    """
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise InputError(f"{expression!r}: {error}", where="‹metric›") from error
    if pattern.groups < 1:
        raise InputError(
            f"{expression!r} has no group",
            where="‹metric›",
            hint="put the number in parentheses: 'steps/s: ([0-9.]+)', or for a time "
            "'(?P<time>[0-9.]+) s'",
        )
    return Metric(expression, pattern)


def read_speed(output: Sequence[bytes], metric: Metric | None = None) -> JobSpeed | None:
    """Return the speed that a program printed; None without one. `output` are its streams.

    Without `metric`, the first of `METRICS` that is in the output counts.
    """
    lines = [line for stream in output for line in _lines(stream)]
    for one in METRICS if metric is None else [metric]:
        values = list(_values(lines, one))
        if not values:
            continue
        left_out = 0 if one.is_whole else min(math.ceil(_WARM_UP * len(values)), len(values) - 1)
        kept = values[left_out:]
        return JobSpeed(
            f"{one.name}, of the whole run" if one.is_whole else one.name,
            median([speed for speed, _ in kept]),
            len(values),
            left_out,
            one.is_time,
            median([rounding for _, rounding in kept]),
        )
    return None


def unread(output: Sequence[bytes], words: str) -> UnreadSpeedError:
    """Return the error `words`; its hint shows the last lines of `output` that hold numbers."""
    lines = [" ".join(line.split()) for stream in output for line in _lines(stream)]
    shown = [line[:_SHOWN] for line in lines if re.search("[0-9]", line)][-3:]
    hint = "correct ‹metric›"
    hint += "; the last lines with a number are: " + " | ".join(shown) if shown else ""
    hint += "" if shown else "; no line that it printed has a number"
    return UnreadSpeedError(words, hint=hint)


def wall_speed(seconds: float) -> JobSpeed:
    """Return the speed of a start by its duration."""
    return JobSpeed(WALL, 1 / seconds, is_time=True)


def _lines(stream: bytes) -> Iterator[str]:
    text = _ESCAPE.sub("", stream.decode(errors="replace"))
    for line in _LINE_END.split(text):
        yield line[:_LONGEST_LINE]


def _values(lines: Sequence[str], metric: Metric) -> Iterator[tuple[float, float]]:
    """Yield the speeds in lines, each with its relative rounding."""
    for line in lines:
        match = metric.pattern.search(line)
        if match is None:
            continue
        time = match["time"] if "time" in metric.pattern.groupindex else None
        number = time or next(filter(None, match.groups()), None) or ""
        text = number.replace(",", "")
        try:
            value = float(text)
        except ValueError:
            continue
        if 0 < value < math.inf:
            digits = re.split("[eE]", text)[0].partition(".")[2]
            exponent = int(re.split("[eE]", text)[1]) if "e" in text.lower() else 0
            rounding = 0.5 * 10.0 ** (exponent - len(digits)) / value
            yield 1 / value if time else value, rounding
