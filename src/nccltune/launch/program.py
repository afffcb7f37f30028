# SPDX-License-Identifier: Apache-2.0
"""Read the arguments of nccl-tests as its getopt does: GPUs, and the sizes to be measured."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import PurePosixPath
from typing import NamedTuple

from nccltune.model.names import listed

_BINARY = re.compile(
    r"(all_reduce|all_gather|broadcast|reduce_scatter|reduce|alltoallv?|scatter|gather|sendrecv"
    r"|hypercube)_perf(\w|[.-])*"
)


def _pairs(text: str) -> dict[str, str]:
    pairs = (word.partition(":") for word in listed(text))
    return {name: letter for name, _, letter in pairs}


_LONG = _pairs("""
nthreads:t ngpus:g minbytes:b maxbytes:e stepbytes:i stepfactor:f iters:n agg_iters:m
warmup_iters:w run_cycles:N parallel_init:p check:c op:o datatype:d root:r blocking:z
stream_null:y timeout:T cudagraph:G report_cputime:C average:a local_register:R cta_policy:x
device_implementation:D device_cta_count:V output_file:J report_timestamps:S memory:M unalign:u
per_iter_timing:I per_iter_skip:K help:h
""")
LETTERS = frozenset("tgbeifnmwNpIKcodrzyTGCaRxDVJSMu")
"""Options of nccl-tests 2.19.6 that take a value. The only other option, `-h`, takes none."""
LONG_NAMES = frozenset(_LONG)
_RCCL_LONG = _pairs("""
memory_type:Y cumask:u out_of_place:O delay_inout_place:q cache_flush:F rotating_tensor:E
output_format:Z rccl_output_format:Z rccl_output_file:X output_algo_proto_channels:A hipgraph:G
""")
RCCL_LETTERS = frozenset("YOqFEZXA")
"""Options that only rccl-tests has. Older versions also read -x as a file, and -y as a memory."""
_FAMILIES = listed("""
all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter
gather sendrecv hypercube
""")
_SQUEEZED = {family.replace("_", ""): family for family in _FAMILIES} | {
    "bcast": "broadcast",
    "sendreceive": "sendrecv",
}
_SIZE = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S)?", re.ASCII)
_NAMED_NUMBER = re.compile(
    r"[A-Z][A-Z0-9_]*|n|np|n_?(?:gpu|proc|rank|node|task|process)(?:e?s)?"
    r"|(?:num|number|total)_?(?:of_?)?(?:gpu|proc|rank|node|task|process)(?:e?s)?(?:_per_\w+)?",
    re.ASCII,
)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DEFAULT_BYTES = 32 << 20
DEFAULT_STEP = 1 << 20


class Argument(NamedTuple):
    """One option: its letter and value, in `length` words from index `at` on."""

    flag: str
    value: str
    at: int
    length: int


_HIDDEN = re.compile(r"[$`]|\.\.\.$|\u2026$|\[\.\.\.\]$|@\w+@$")


class Program(NamedTuple):
    """An nccl-tests binary, at index `at` of a command, with its arguments.

    `unknown` are the words that nccl-tests refuses, `ignored` those that it never reads.
    """

    binary: str
    at: int
    arguments: tuple[Argument, ...]
    unknown: tuple[tuple[int, str], ...]
    ignored: tuple[tuple[int, str], ...] = ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the words that may become arguments: `$ARGS`, `...`, `@args@`."""
        return tuple(word for _, word in self.ignored if _HIDDEN.match(word))

    @property
    def is_rccl(self) -> bool:
        """Return whether the binary is one of rccl-tests, by its path or by its options."""
        return "rccl" in self.binary or any(a.flag in RCCL_LETTERS for a in self.arguments)

    @property
    def collective(self) -> str:
        """Return the collective of the binary: `all_reduce`."""
        match = _BINARY.fullmatch(PurePosixPath(self.binary).name)
        return match[1] if match is not None else ""

    def value(self, flag: str) -> str | None:
        """Return the last value of an option; None if it is missing."""
        return next((a.value for a in reversed(self.arguments) if a.flag == flag), None)

    def number(self, flag: str, default: int) -> int:
        """Return the value as strtol reads it (leading digits, else 0), or `default` without
        one."""
        value = self.value(flag)
        return default if value is None else strtol(value)

    @property
    def gpus(self) -> int | None:
        """Return the GPUs of a process, threads times GPUs; None if a placeholder may be in one."""
        if self.hidden and self.value("g") is None:
            return None
        given = [self.value(flag) or "" for flag in "tg"]
        if any(re.search(r"[$`<{\[]", value) or is_named_number(value) for value in given):
            return None
        return max(1, self.number("t", 1)) * max(1, self.number("g", 1))

    def size(self, flag: str) -> int | None:
        """Return `b` or `e` in bytes, 32 MiB by default; None if it is not a valid size."""
        value = self.value(flag)
        return DEFAULT_BYTES if value is None else parse_size(value)

    @property
    def sizes(self) -> "Sizes | None":
        """Return the sizes that will be measured; None if an option has no valid value."""
        if self.hidden and None in map(self.value, "bef"):
            return None
        first, last, factor = self.size("b"), self.size("e"), self.number("f", 1)
        step = DEFAULT_STEP
        if (given := self.value("i")) is not None:
            read = parse_size(given)
            if read is None:
                return None
            step = read
        if first is None or last is None or (factor <= 1 and step <= 0):
            return None
        return Sizes(first, last, max(1, factor), step)


class Sizes(NamedTuple):
    """The sizes from `first` to `last`: times `factor`, or if that is 1, `step` bytes apart."""

    first: int
    last: int
    factor: int
    step: int

    @property
    def end(self) -> int | None:
        """Return the last size that is measured; None if no size is measured."""
        if self.first > self.last:
            return None
        if self.factor == 1:
            return self.first + (self.last - self.first) // self.step * self.step
        size = self.first
        while size and size * self.factor <= self.last:
            size *= self.factor
        return size

    @property
    def number(self) -> int:
        """Return the number of sizes."""
        if self.factor == 1:
            return max(0, (self.last - self.first) // self.step + 1)
        return sum(1 for _ in self.each())

    def each(self) -> Iterator[int]:
        """Yield each size that is measured, in bytes."""
        size = self.first
        while size <= self.last:
            yield size
            if self.factor > 1 and size == 0:
                return
            size = size * self.factor if self.factor > 1 else size + self.step


def parse_size(text: str) -> int | None:
    """Return a size in bytes as nccl-tests reads it; None if nccl-tests refuses the text.

    nccl-tests reads only the first letter of a unit: `8GB` is 8 GiB, `8B` is refused.

    >>> parse_size("8GB"), parse_size("8B")
    (8589934592, None)
    """
    match = _SIZE.match(text)
    if match is None or (match[2] or "").lower() not in _UNITS:
        return None
    size = float(match[1]) * _UNITS[(match[2] or "").lower()]
    return int(size) if 0 <= size < 1 << 63 else None


def strtol(text: str) -> int:
    """Return the number that C's strtol reads: the leading digits, cut to the range of a long.

    >>> strtol("8x"), strtol("many")
    (8, 0)
    """
    match = re.match(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]+)|([0-9]+))", text)
    if match is None:
        return 0
    digits, base = (match[2], 16) if match[2] else (match[3], 10)
    number = min(int(digits.lstrip("0")[:20] or "0", base), (1 << 63) - 1)
    return -number if match[1] == "-" else number


def is_named_number(text: str) -> bool:
    """Return whether a text stands for a number that the reader is to put there.

    >>> is_named_number("N"), is_named_number("NUM_GPUS"), is_named_number("eight")
    (True, True, False)
    """
    return _NAMED_NUMBER.fullmatch(text) is not None


def is_nccl_test(word: str) -> bool:
    """Return whether a word is the name or path of an nccl-tests binary."""
    return _BINARY.fullmatch(PurePosixPath(word).name) is not None


def nearest_nccl_test(word: str) -> str | None:
    """Return the nccl-tests binary that a misspelt name means (`allreduce_perf`), else None.

    Names of forks, such as `nccl_alltoall_perf`, are none.
    """
    path = PurePosixPath(word)
    if _BINARY.fullmatch(path.name) or not re.fullmatch(r"(?!nccl_)[\w.-]+", path.name):
        return None
    name, found, rest = path.name.lower().replace("-", "_").partition("_perf")
    if not found:
        name, found, rest = path.name.lower().replace("-", "_").partition("perf")
    if not found:
        # The ending itself is misspelt, as in `all_reduce_pref`.
        whole = {f"{squeezed}perf": family for squeezed, family in _SQUEEZED.items()}
        squeezed = name.replace("_", "")
        close = difflib.get_close_matches(squeezed, whole, n=1, cutoff=0.9)
        return f"{word[: -len(path.name)]}{whole[close[0]]}_perf" if close else None
    if rest.startswith(".") or not name:
        return None
    squeezed = name.replace("_", "")
    family = _SQUEEZED.get(squeezed)
    if family is None and squeezed.startswith(tuple(f"{known}test" for known in _SQUEEZED)):
        return None  # `allreduce_test_perf` of MSCCL++
    if family is None:
        close = difflib.get_close_matches(squeezed, _SQUEEZED, n=1, cutoff=0.8)
        family = _SQUEEZED[close[0]] if close else None
    if family is None:
        return None
    return word[: len(word) - len(path.name)] + f"{family}_perf{rest}"


def bare_collective(words: Sequence[str]) -> tuple[int, str] | None:
    """Return index and binary of a word such as `all_reduce` before -b and -e; else None."""
    for at, word in enumerate(words):
        name = PurePosixPath(word).name
        family = _SQUEEZED.get(name.lower().replace("-", "_").replace("_", ""))
        if family is not None and {"-b", "-e"} <= set(words[at + 1 :]):
            return at, word[: len(word) - len(name)] + f"{family}_perf"
    return None


def read_program(words: Sequence[str], skip: Set[int] = frozenset()) -> Program | None:
    """Return the nccl-tests binary among `words` with its arguments; None if there is no binary.

    Other words, such as `numactl ...`, may come before it. Words at the indexes in `skip` are not
    read.

    >>> read_program(["all_reduce_perf", "-b", "8", "-g", "4"]).gpus
    4
    """
    at = next((place for place, word in enumerate(words) if is_nccl_test(word)), None)
    if at is None:
        return None
    arguments: list[Argument] = []
    unknown: list[tuple[int, str]] = []
    ignored: list[tuple[int, str]] = []
    place = at + 1
    # A path that names nccl-tests has none of the options of rccl-tests.
    known = _LONG if "nccl" in words[at] and "rccl" not in words[at] else _LONG | _RCCL_LONG
    while place < len(words):
        if place in skip:
            place += 1
        else:
            place = _take(words, place, known, arguments, unknown, ignored)
    return Program(words[at], at, tuple(arguments), tuple(unknown), tuple(ignored))


def _take(
    words: Sequence[str],
    at: int,
    names: Mapping[str, str],
    arguments: list[Argument],
    unknown: list[tuple[int, str]],
    ignored: list[tuple[int, str]],
) -> int:
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else None
    if word.startswith("--") and len(word) > 2:
        name, sign, value = word[2:].partition("=")
        near = {names[long] for long in names if long.startswith(name)}
        letter = names.get(name) or (near.pop() if len(near) == 1 else None)
        if letter is None:
            unknown.append((at, word))
            return at + 1
        rest = value if sign else None
    elif word.startswith("-") and len(word) > 1:
        letter, rest = word[1], word[2:] or None
        if letter not in LETTERS and letter not in names.values():
            unknown.append((at, word))
            return at + 1
    else:
        # getopt skips words that are not options, and nccl-tests never reads them.
        ignored.append((at, word))
        return at + 1
    if letter == "h":
        arguments.append(Argument("h", "", at, 1))
        return at + 1
    if rest is None and following is None:
        unknown.append((at, word))
        return at + 1
    arguments.append(
        Argument(
            letter, rest if rest is not None else following or "", at, 1 if rest is not None else 2
        )
    )
    return at + (1 if rest is not None else 2)
