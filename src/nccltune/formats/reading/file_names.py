# SPDX-License-Identifier: Apache-2.0
"""Find the choice in a file name, if every word of the name is known.

A wrong label is worse than no label. So `fat_tree_simple`, `not-tree_ll` and `node-ring01` give no
choice: a name with a word that is not known is no evidence.
"""

import re
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from nccltune.formats.reading.collective_names import collective_of_title
from nccltune.formats.reading.foreign_names import counts_in_english
from nccltune.model.choice import DEFAULT, TUNED_RUN, Algorithm, AnyChoice, Choice, Protocol

_NAMED_NODES = re.compile(
    r"(?<![A-Za-z0-9])(?:N|nodes)[-_]?0*(\d{1,5})(?!\.?\d)|(\d{1,5})[-_]?nodes?(?![a-z])"
)
_NAMED_RANKS = re.compile(
    r"(?<![A-Za-z0-9])(?:n|np|ranks|gpus)[-_]?0*(\d{1,6})(?!\.?\d)"
    r"|(\d{1,6})[-_]?(?:ranks?|gpus?|procs?)(?![a-z])"
)


def scale_of_name(name: str) -> tuple[int | None, int | None]:
    """Return the nodes and the ranks that a file's name states; None for what it does not.

    >>> scale_of_name("runs/job-n-00256-N-0064.csv")
    (64, 256)
    """
    stem = PurePath(name).name
    found = []
    for pattern in (_NAMED_NODES, _NAMED_RANKS):
        numbers = {int(a or b) for a, b in pattern.findall(stem)}
        found.append(numbers.pop() or None if len(numbers) == 1 else None)
    return found[0], found[1]


def scale_of_heading(heading: str) -> tuple[int | None, int | None]:
    """Return the nodes and the ranks that the heading of a column states: `8 GPUs`, `4xA100`."""
    heading = counts_in_english(heading).strip()
    nodes, ranks = scale_of_name(re.sub(r"\W", "_", heading.lower()))
    machine = re.match(r"(\d{1,6})[ _]?x?[ _]?[A-Za-z]{1,3}\d{2,4}", heading)
    return nodes, ranks or (int(machine[1]) if machine is not None else None)


def headings_apart(headings: list[str]) -> set[str]:
    """Return the headings of columns that are runs of other conditions.

    Those are no repeats, and are neither the only one of a choice, of a collective nor of a scale.
    """

    def named(heading: str) -> object:
        collective, scale = collective_of_title(heading), scale_of_heading(heading)
        choice = named_choice(heading)
        choice = choice._replace(name="") if choice is not None and choice.is_evidence else None
        known = choice is not None or any(scale) or (alike and collective is not None)
        return (collective, choice, scale) if known else None

    # Beside `vLLM`, `custom all-reduce` is no other collective.
    alike = all(map(collective_of_title, headings))
    names = [named(heading) for heading in headings]
    return {
        heading
        for heading, name in zip(headings, names, strict=True)
        if not _REPEAT.fullmatch(heading) and (name is None or names.count(name) > 1)
    }


def conditions_of(headings: list[str], *, comparing: bool) -> set[str]:
    """Return the headings that name a run's conditions: all to compare, unless each is a scale."""
    scales = {scale_of_heading(heading) for heading in headings}
    series = len(scales) == len(headings) > 1 and all(map(any, scales))
    return set(headings) if comparing and not series else headings_apart(headings)


def without_repeat(heading: str) -> str:
    """Return a heading without the number of a repeat in it: `Run 2`, `default-rep1.log`."""
    return _REPEAT.sub("", heading).strip()


class NamedChoice(NamedTuple):
    """The choice in a name: a whole `choice`, or only one of `algorithm` and `protocol`.

    `unclear` marks a name of known words that names several choices. `words` are the words of a
    choice in a name that is no evidence; `unknown` is the word that is not known. `likely` means
    that such a name may still state a choice: it has a whole choice, or negates one.
    """

    name: str
    choice: AnyChoice | None = None
    algorithm: Algorithm | None = None
    protocol: Protocol | None = None
    unclear: bool = False
    words: tuple[str, ...] = ()
    unknown: str = ""
    likely: bool = False

    @property
    def is_evidence(self) -> bool:
        """Return whether the name states something about the choice."""
        return not self.unknown


_ALGORITHMS = {
    "tree": Algorithm.TREE,
    "ring": Algorithm.RING,
    "collnetdirect": Algorithm.COLLNET_DIRECT,
    "collnetchain": Algorithm.COLLNET_CHAIN,
    "nvls": Algorithm.NVLS,
    "nvlstree": Algorithm.NVLS_TREE,
    "pat": Algorithm.PAT,
}
_PROTOCOLS = {"ll": Protocol.LL, "ll128": Protocol.LL128, "simple": Protocol.SIMPLE}
_WHOLE = ("default", "tuned")
_CHOICE_WORDS = (*_ALGORITHMS, *_PROTOCOLS, *_WHOLE)
# Words that carry no information about the choice, including pieces of compound words.
_OTHER = """
nccl tests test nt perf mpi bench benchmark benchmarks log logs out output result results res
data raw file files txt text json jsonl csv tsv dat md err stdout stderr print console all
reduce allreduce gather allgather scatter reducescatter broadcast bcast sendrecv send recv
alltoall alltoallv hypercube to run runs rep reps repeat repeats round rounds iteration
iterations iter iters sweep sweeps trial trials sample samples measurement measurements series
pass cycle cycles attempt part algo algos algorithm proto protocol choice forced force size
sizes bytes defaults node nodes rank ranks gpu gpus proc procs process np channels channel intra
auto inter single multi internode intranode slurm job jobs ib roce eth tcp socket sockets nvlink
pcie nvidia dgx hgx rtx cuda driver lib float half double bfloat int uint fp bf float16
float32 float64 fp16 fp32 fp64 bf16 bfloat16 int8 uint8 int32 int64 sum prod avg max min inplace
place jan feb mar apr may jun jul aug sep oct nov dec january february march april june july
august september october november december mon tue wed thu fri sat sun am pm utc first second
third last final new old one two four eight a b c d x n graph graphs registered standard input
"""
_OTHER_WORDS = frozenset(_OTHER.split())
_SIZED = re.compile(
    r"\d+(?:[bkmgt]|[kmgt]i?b|[kmgt]i|n|nn|nodes?|gpus?|ranks?|r|p|procs?|ch|channels?|ctas?|"
    r"iters?|it|w|st|nd|rd|th|h|s|min|us|ms)?"
    r"|(?:n|nodes?|gpus?|np|g|ranks?|r|run|rep|round|repeat|iter|try|trial|take|part|v|version|"
    r"job|step|seed|ch|channels?|nch|rail|cycle|pass|o|e|x|b|m|t|i|w|p|f)\d+"
    r"|\d+(?:x\d+)+|x\d+|\d+x"
    r"|(?:\d+x)?(?:dgx|hgx|rtx|gb|gh|mi|h|a|b|v|l|p|t)\d{1,4}[a-z]?(?:x\d+)?"
    r"|\d{8}t\d{4,6}z?|t\d{4,6}z?"
    r"|[a-z]{1,16}\d{2,12}|(?=[a-f]*\d)[0-9a-f]{7,40}"  # hosts, job numbers, hashes
)
_NEGATIONS = ("no", "not", "non", "un", "anti", "without", "sans", "wo", "never", "de")
_MACHINES = ("node", "host")
# `NVLS=0` is a setting that may rule the algorithm out, and never the choice of it.
_SWITCH = re.compile(
    rf"(?<![a-z0-9])(?:{'|'.join(_CHOICE_WORDS)})(?:_?enabled?)?\s?[=:]\s?"
    r"(?:[01]|on|off|true|false|yes|no|enabled?|disabled?)(?![a-z0-9])"
)
_LONGEST_WORD = 64
_REPEAT = re.compile(
    r"(?<![a-z])(?:run|rep(?:eat)?|trial|round|iter(?:ation)?|pass|attempt|try)[ _#-]*\d+", re.I
)


def named_choice(name: str) -> NamedChoice | None:
    """Return the choice in a file's name, else in the name of its nearest folder.

    A choice is an algorithm and a protocol (`nt_Tree-LL128.txt`), or `default`, or `tuned`. If the
    name also has unknown words, or words of several choices, the result is `unclear`. Return None
    if no part of the path has a word of a choice. A folder can complete a file's name:
    `Tree/LL128.txt`.
    """
    half: NamedChoice | None = None
    for part in reversed(PurePath(name).parts):
        found = _of_part(part)
        if found is None:
            continue
        if half is None or not half.is_evidence:
            if found.choice is not None or found.unclear:
                return found
            half = found if half is None or found.is_evidence else half
            continue
        if found.unclear or found.choice is not None or not found.is_evidence:
            return half
        algorithm = half.algorithm or found.algorithm
        protocol = half.protocol or found.protocol
        if algorithm is None or protocol is None:
            return half
        return NamedChoice(f"{found.name}/{half.name}", Choice(algorithm, protocol))
    return half


def _of_part(part: str) -> NamedChoice | None:
    words: list[str] = []
    unknown = "" if (switch := _SWITCH.search(part.lower())) is None else switch[0]
    hiding = ""
    for word, before in _words(part):
        pieces = None if _names_a_host(word, before) else _pieces(word)
        if pieces is None:
            unknown = unknown or word
            hiding = hiding or (word if _hides_choice(word) else "")
            # A part of a host's name is still shown as the word that the name has.
            words += _pieces(word) or []
        else:
            words += pieces
    words = _joined(words)
    algorithms = {_ALGORITHMS[word] for word in words if word in _ALGORITHMS}
    protocols = {_PROTOCOLS[word] for word in words if word in _PROTOCOLS}
    whole = {word for word in words if word in _WHOLE}
    shown = tuple(dict.fromkeys(word for word in words if word in _CHOICE_WORDS))
    if not (shown or hiding):
        return None
    if unknown:
        negated = any(word in _NEGATIONS for word, _ in _words(part))
        likely = bool(algorithms and protocols) or bool(hiding) or (negated and bool(shown))
        return NamedChoice(part, words=shown or (hiding,), unknown=hiding or unknown, likely=likely)
    if len(algorithms) > 1 or len(protocols) > 1 or len(whole) > 1:
        return NamedChoice(part, unclear=True)
    if whole:
        if algorithms or protocols:
            return NamedChoice(part, unclear=True)
        return NamedChoice(part, DEFAULT if whole == {"default"} else TUNED_RUN)
    algorithm = next(iter(algorithms), None)
    protocol = next(iter(protocols), None)
    if algorithm is not None and protocol is not None:
        return NamedChoice(part, Choice(algorithm, protocol))
    return NamedChoice(part, algorithm=algorithm, protocol=protocol)


def _words(part: str) -> list[tuple[str, str]]:
    """Return the words of a name, each with the word before it."""
    words = re.findall(r"[a-z0-9]+", part.lower())
    return list(zip(words, ["", *words], strict=False))


def _names_a_host(word: str, before: str) -> bool:
    """Return whether a word is the name of a machine: `ring01` in `node-ring01`, `ringnode3`."""
    plain = word.rstrip("0123456789")
    ends = [plain.removesuffix(noun) for noun in _MACHINES if plain.endswith(noun)]
    ends += [plain.removeprefix(noun) for noun in _MACHINES if plain.startswith(noun)]
    return any(end in _CHOICE_WORDS for end in ends) or (
        before in _MACHINES and plain in _CHOICE_WORDS
    )


def _joined(words: list[str]) -> list[str]:
    """Join the words of an algorithm with two words: `nvls tree`, `collnet direct`."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] + word in ("nvlstree", "collnetdirect", "collnetchain"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


@lru_cache(maxsize=4096)
def _pieces(word: str) -> list[str] | None:
    """Return the words of a choice in a compound word such as `ringsimple`.

    The list is empty if there are none. Return None if a part of the word is unknown.
    """
    if word in _CHOICE_WORDS or word in ("collnet", "direct", "chain"):
        return [word]
    if re.fullmatch(r"(?:tree|ring|nvls|pat|simple|default|tuned)\d{1,3}", word):
        return [word.rstrip("0123456789")]
    if word in _OTHER_WORDS or _SIZED.fullmatch(word):
        return []
    if len(word) > _LONGEST_WORD:
        return None
    # `ways[end]` is a split of the first `end` letters. Other words of one or two letters are not
    # used, because they occur inside almost any word.
    known = [*_CHOICE_WORDS, *(other for other in _OTHER_WORDS if len(other) > 2)]
    ways: list[list[str] | None] = [[], *([None] * len(word))]
    for end in range(1, len(word) + 1):
        for piece in sorted(known, key=len, reverse=True):
            start = end - len(piece)
            if start >= 0 and word.startswith(piece, start) and (way := ways[start]) is not None:
                ways[end] = [*way, piece]
                break
        else:
            digits = re.search(r"(?<=[a-z])\d+$", word[:end])
            if digits is not None and (way := ways[digits.start()]) is not None:
                ways[end] = way
    found = ways[len(word)]
    return None if found is None else [piece for piece in found if piece in _CHOICE_WORDS]


def _hides_choice(word: str) -> bool:
    """Return whether an unknown word contains a negated word of a choice (`notree`, `untuned`)."""
    return any(
        word.endswith(choice) and word.removesuffix(choice) in _NEGATIONS
        for choice in _CHOICE_WORDS
    )


def file_names(value: str) -> tuple[str, ...]:
    """Return the file names in a list of paths, as `LD_PRELOAD` has it."""
    return tuple(part.rpartition("/")[2][:80] for part in re.split(r"[\s:]+", value) if part)
