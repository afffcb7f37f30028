# SPDX-License-Identifier: Apache-2.0
"""Recognise the columns of a table by the names that people give them.

A column has a role, which is nccl-tests' or NVIDIA's name of it. A name that is not known has no
role, and its values are never used.
"""

import re
from collections.abc import Hashable, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from nccltune.formats.reading.foreign_names import has_foreign_name, in_english
from nccltune.formats.reading.quantities import bandwidth_unit, time_unit
from nccltune.formats.text.cells import CellError
from nccltune.formats.text.delimited import BLANKS, cells_of, separators_of
from nccltune.formats.text.lines import visible
from nccltune.model.collective import Collective

_NAMES = {
    "size": "size bytes nbytes msgsize messagesize sizebytes datasize buffersize messagebytes"
    " msgbytes sizeinbytes messagesizebytes msgsizebytes payload payloadsize totalbytes sizebyte"
    " sizeb sz message msg payloadsz msgsz messagesz datasz bufsize transfersize tensorsize"
    " tensorbytes",
    "count": "count elements nelements numelements elems elementcount countelements",
    "type": "type dtype datatype",
    "redop": "redop reduction reductionop reduceop",
    "root": "root rootrank",
    "time": "time latency lat duration elapsed avgtime meantime timeavg avglatency latencyavg"
    " averagetime averagelatency meanlatency elapsedtime calltime tavg",
    "algbw": "algbw algobw algbandwidth algorithmbandwidth algorithmbw abw",
    "busbw": "busbw busbandwidth bbw",
    "#wrong": "wrong errors nwrong wrongresults",
    "error": "error",
    "collective": "collective kind coll collectivetype colltype operation primitive collectivename"
    " ncclfunc func function",
    "op": "op",
    "algorithm": "algorithm algo alg ncclalgo ncclalgorithm algoname algorithmname forcedalgo",
    "protocol": "protocol proto ncclproto ncclprotocol protoname protocolname forcedproto",
    "choice": "choice algoproto algorithmprotocol ncclalgoncclproto ncclalgoproto",
    "channels": "channels nchannels numchannels nch channelcount",
    "nodes": "nodes nnodes numnodes nodecount",
    "ranks": "ranks nranks numranks worldsize rankcount tp tpsize np nproc",
    "per_node": "gpuspernode rankspernode devicespernode ppn npernode ntaskspernode",
    "pipeOps": "pipeops numpipeops",
    "regBuff": "regbuff regbuf registered",
    "bandwidth": "bandwidth bw",
    "cost_metric": "costmetric",
    "spread": "tmin tmax minbw maxbw avgbw min max mintime maxtime timemin timemax std stddev"
    " timestd algbwstd busbwstd cv",
}
_SIZE_UNITS = frozenset({"kib", "mib", "gib", "kb", "mb", "gb"})
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
RAW = frozenset({"collective", "algorithm", "protocol", "choice"})
"""Roles that only a raw CSV has: rows of several collectives or choices."""
CHOSEN = RAW - {"collective"}
MEASURED = frozenset({"time", "algbw", "busbw", "bandwidth"})
NAME_CHOICE = "name it algorithm, protocol or choice, or delete it if NCCL chose freely"
OTHER_RUN = "other run"
"""The role of the columns of another run in the header of a run."""
_PER_RUN = ("time", "algbw", "busbw")
_RATE_WORDS = re.compile(
    r"(?<![a-z])(?P<kind>alg|bus)[a-z]{0,6}[ _-]?(?:bw|bandwidth)(?![a-z])", re.IGNORECASE
)
MEASURED_NAME = re.compile(
    r"(?<!mul)time|latency|(?:bus|alg)[ _-]?bw|bandwidth|(?<![a-z])[uµμ]s(?:ecs?)?\b|\bms(?:ec)?\b"
    r"|_ms|GB/?s",
    re.IGNORECASE,
)
_LEAST_KNOWN = 3
_ALIGNED = re.compile(r"\s{2,}")
_LONGEST = 400
MOST_CHARACTERS = 4096
# The lines and cells whose meaning is kept: each line is looked at as one and as one below others.
_KEPT = 512
_REPEAT = re.compile(
    r"\b(?:run|rep|repeat|round|iter\w*|trial|cycle|pass|date|time\w*|index|id|seq\w*|notes?|comments?)\b"
    r"|stamp|#$|%|util|power|temp|peak|gain|speed|share|bw|bandwidth|latency|_us\b|[(][um]s[)]",
    re.IGNORECASE,
)
_SEPARATES = re.compile(
    r"(?<![a-z])np(?![a-z])|gpu|rank|node|world|proc|mode|config|variant|case|setting|version|nccl"
    r"|transport|test|label|name|backend|impl|env|host|machine|cluster|channel|thread|nic|kernel|algo|proto",
    re.IGNORECASE,
)
_VARIANT = re.compile(
    r"(?<![a-z])(?:(?:config\w*|variant|impl\w*|backend|lib(?:rary)?|label|setting)s?"
    r"|(?P<machine>node|host(?:name)?|machine|server|instance))(?![a-z])",
    re.IGNORECASE,
)
"""Names of columns whose values name runs of other conditions or machines."""
_FORCED = re.compile(
    r"(?!.*(?:used|ran|select|chosen|actual|picked|observed|auto|net|transport|ib|rdma))"
    r".*(?:algo(?:rithm)?|proto(?:col)?)s?(?![a-z])(?![ _-]?b)",
    re.IGNORECASE,
)
_RANK = re.compile(r"(?:\w+[ _])?rank(?:[ _]id)?", re.IGNORECASE)
_OF_ONE_RANK = {"recvbytes": Collective.REDUCESCATTER, "sendbytes": Collective.ALLGATHER}
"""Sizes of a call, but for the collective of which they are a rank's part of it."""
_RULES = frozenset({"minbytes", "maxbytes", "bytesperrank"})
"""Columns of a tuner configuration, which is no table of measurements."""
_TIME_WORDS = re.compile(
    r"(?<![a-z])(?:times?|latency|lat|duration|avg|average|mean|median)(?![a-z])", re.I
)
_MEAN = re.compile(r"(?<![a-z])(?:avg|average|mean)(?![a-z])", re.IGNORECASE)
_MEDIAN = re.compile(r"(?<![a-z])median(?![a-z])", re.IGNORECASE)
_STATISTIC = re.compile(r"(?<![a-z])(?:avg|average|mean|median|p\d{2,4})(?![a-z])", re.IGNORECASE)
NO_RUN = re.compile(
    r"(?<![a-z])(?:diff\w*|delta|sav\w+|gains?|improve\w*|overhead|change|speed\w*|predict\w*|model\w*"
    r"|expect\w*|ideal|theor\w*|estimat\w*|simulat\w*|limit|target|bound|tokens?|rows?|batch\w*"
    r"|shapes?|hidden|ratio|winner|fastest|dtype|iter\w*|samples?|result\w*)(?![a-z])|[\u0394\u2206\u00b1%]"
    r"|\+/?-|^\W*\+\W*$",
    re.IGNORECASE,
)
_NOT_ONE_CALL = re.compile(
    r"(?<![a-z])(?:m(?:in|ax)(?!\d)|med(?:ian)?|std\w*|var|sigma|best|worst|cv|jitter|p\d+|[ct]pu|gpus?|kernel"
    r"|launch|[hd]2[hd]|copy|setup|init|total|sum|comp\w*|comm\w*|wait|send|recv|overlap"
    r"|ranks?|nodes?|procs?|process\w*|np|(?:all|reduce|broad)"
    r"[ _-]?(?:reduce|gather|scatter|to[ _-]?all|cast)|broadcast|bcast|reduce|gather|scatter)"
    r"(?![a-z])",
    re.IGNORECASE,
)
_OF_COLLECTIVE = re.compile(
    r"^(?:all[ _-]?(?:reduce|gather|to[ _-]?all)|reduce[ _-]?scatter|broadcast)[ _:-]+",
    re.IGNORECASE,
)
"""A collective before the condition of a run: `all-gather off`, `all-gather on`."""
_SETTING = re.compile(r"[nr]ccl_\w+ ?= ?\S+", re.IGNORECASE)
_SCALE = re.compile(r"\d{1,6}[ _x-]{0,3}(?:[a-z]{1,3}\d{2,4}\w?|gpus?|ranks?|nodes?)", re.I)
_COLLECTIVES = frozenset(item.value for item in Collective)
_VALUE = re.compile(r"<.*>|-?\d{1,20}")
_HINT = re.compile(
    r"size|bytes|payload|algo|proto|coll|taille|tamanho|octets"
    r"|(?<![a-z])(?:[kmg]i?b|msgs?|messages?)(?![a-z])|sz(?![a-z])",
    re.IGNORECASE,
)
_PLACEMENT = re.compile(
    r"(?P<out>out[-_ ]?of[-_ ]?place|\boop\b|(?<=_)oop\b|\boop(?=_))"
    r"|(?P<in>in[-_ ]?place|\bin?p\b|(?<=_)in?p\b|\bin?p(?=_))",
    re.IGNORECASE,
)
_UNIT = re.compile(r"[(\[](?P<unit>[^)\]]{1,24})[)\]]")
_BARE = re.compile(r"[,/]\s*(?P<unit>[^\s,/()\[\]]{1,12})$")
_SUFFIX = re.compile(
    r"[\s_](?P<unit>us|usec|ms|msec|ns|sec|gbps|gb_?s|gb/s|mbps|mbs|mb/s|gib/s|gbit/s|gb/sec"
    r"|kb|mb|gb|kib|mib|gib|[\u00b5\u03bc]s)$",
    re.IGNORECASE,
)
_SIZE_UNIT = re.compile(r"[kmgt]?i?b(?:ytes?)?|bytes?|elements|elems", re.IGNORECASE)


_PARTS = re.compile(
    r"[(\[]?(?<![a-z])(?P<parts>{0}(?:\s?/\s?{0})+)(?![a-z])[)\]]?".format(
        r"(?:avg|average|mean|median|med|min|max|p\d{2,4}|std(?:dev)?|best|worst)"
    ),
    re.IGNORECASE,
)
"""What the values of one cell are: `latency (us) avg/min/max`."""
SEVERAL = re.compile(r"{0}(?:/\s?{0}){{1,15}}".format(r"[\d.,]{0,24}\d(?:[^/\d.,][^/]{0,7})?"))


class Column(NamedTuple):
    """A column: its name in the header, its role, its unit, and `in-place` or `out-of-place`.

    The role of a column whose name is not known is empty. `unit` is the unit's own text. `part` is
    which of how many values in a cell is the mean; None if the name lists none.
    """

    name: str
    role: str = ""
    unit: str = ""
    placement: str = ""
    part: tuple[int, int] | None = None

    @property
    def factor(self) -> Decimal | None:
        """Return the microseconds or the GB/s of the unit; None if none is named."""
        return time_unit(self.unit) if self.role == "time" else bandwidth_unit(self.unit)


class Header(NamedTuple):
    """The header of a table: what separates the cells, and the columns in order."""

    separator: str
    columns: tuple[Column, ...]

    @property
    def roles(self) -> set[str]:
        """Return the roles of the columns."""
        return {column.role for column in self.columns if column.role}

    @property
    def raw(self) -> bool:
        """Return whether the rows name their collective or their choice, as in a raw CSV."""
        by_row = bool(self.roles & (RAW | {"nodes", "ranks"}))
        by_row = by_row or ("op" in self.roles and "type" not in self.roles)
        # rccl-tests adds what ran, with the channels, to the columns of nccl-tests.
        ran = "channels" in self.roles or CHOSEN.isdisjoint(self.roles)
        printed = ran and "collective" not in self.roles and {"count", "type"} <= self.roles
        return by_row and not printed

    def at(self, role: str) -> list[int]:
        """Return the positions of the columns with a role."""
        return [index for index, column in enumerate(self.columns) if column.role == role]

    def runs(self) -> list[tuple[str, "Header"]]:
        """Return the runs in a table with several times or bandwidths, each with its heading.

        In the header of a run, its columns have their roles. Empty if a column may be something
        else than a value of one call, or if the unit of a time is not named.
        """
        groups: dict[str, dict[int, str]] = {}
        headings: dict[str, str] = {}
        places: dict[str, list[tuple[str, str]]] = {}
        named = [_heading_of(column) for column in self.columns]
        medians = [x for x, y in zip(named, self.columns, strict=True) if _MEDIAN.search(y.name)]
        for at, column in enumerate(self.columns):
            heading, role = named[at]
            if role and not (named[at] in medians and _MEAN.search(column.name)):
                groups.setdefault(heading.lower(), {})[at] = role
                headings.setdefault(heading.lower(), heading)
                places.setdefault(heading.lower(), []).append((role, column.placement))
        if any(len({*each}) < len(each) for each in places.values()):
            return []
        if len({frozenset(place for _, place in each) for each in places.values()}) > 1:
            return []
        counts = {role: sum(role in own.values() for own in groups.values()) for role in _PER_RUN}
        measured = next((role for role in _PER_RUN if counts[role] > 1), "")
        if counts["time"] != 1:
            # A single time beside bandwidths of other headings is the time of its own.
            groups = {key: own for key, own in groups.items() if measured in own.values()}
        # A number alone is no heading, but that of a version is.
        clear = len(groups) > 1 and all(re.search(r"[^\W\d_]|^\d+\.\d", key) for key in groups)
        if self.roles & MEASURED or not clear or not _are_of_one_call(list(groups)):
            return []
        taken = {at for own in groups.values() for at in own}
        return [
            (
                headings[key],
                self._replace(
                    columns=tuple(
                        column._replace(role=own[at])
                        if at in own
                        else column._replace(role=OTHER_RUN)
                        if at in taken
                        else column
                        for at, column in enumerate(self.columns)
                    )
                ),
            )
            for key, own in groups.items()
        ]

    @property
    def times_named(self) -> list[str]:
        """Return the names of columns without a role that may be times or bandwidths."""
        names = (name for name in self.unknown if MEASURED_NAME.search(name))
        return [name for name in names if not NO_RUN.search(name)]

    @property
    def unread_choice(self) -> str:
        """Return why rows may be of choices that no known column names; empty if none shows so."""
        name = next(filter(_FORCED.match, self.unknown), "")
        said = f"the column {visible(name, 24)!r} may name what was forced, and is not known"
        return said if name and not CHOSEN & self.roles else ""

    @property
    def unknown(self) -> list[str]:
        """Return the names of the columns without a role."""
        return [item.name for item in self.columns if item.name.strip("# ") and not item.role]


class DifferingColumns:
    """Find the columns that separate runs although their names are not known.

    Rows of one key (size and choice) are repeats of one test, unless such a column differs: one
    with the number of GPUs, a configuration or other words. Columns that number or date repeats do
    not count, and numbers that were measured differ anyway. Columns of the roles `unread` count.
    """

    def __init__(self, header: Header, unread: Set[str]) -> None:
        self._columns = [
            (at, column.name, bool(column.role or _SEPARATES.search(column.name)))
            for at, column in enumerate(header.columns)
            if column.role in unread
            or (not column.role and column.name.strip("# ") and not _REPEAT.search(column.name))
        ]
        self._seen: dict[Hashable, list[str]] = {}

    def add(self, key: Hashable, cells: list[str]) -> str:
        """Add a row; return the name of a column in which it differs from a row of its key."""
        values = [cells[at] for at, _, _ in self._columns]
        before = self._seen.setdefault(key, values)
        for (_, name, separates), value, other in zip(self._columns, values, before, strict=True):
            words = not any(char.isdigit() for char in value + other)
            if value != other and (words or separates):
                return name
        return ""


def is_variant(column: Column) -> bool:
    """Return whether the values of a column name runs of other conditions or machines."""
    named = _VARIANT.search(column.name) is not None and not _REPEAT.search(column.name)
    return named and not column.role


def variants_of(header: Header, cells: Sequence[str]) -> dict[str, str]:
    """Return the columns of a row that name its run, and the names.

    A number of a machine names none. Nor does a machine where the rows are of ranks, which time one
    run, or of choices: each of those may have run elsewhere.
    """
    return {
        header.columns[at].name: cells[at]
        for at, is_machine in _variants(header)
        if cells[at] and not (is_machine and not re.search(r"[^\W\d_]", cells[at]))
    }


@lru_cache(_KEPT)
def _variants(header: Header) -> list[tuple[int, bool]]:
    """Return the positions of columns that name runs, and whether they name machines."""
    one_run = any(_RANK.fullmatch(column.name) for column in header.columns)
    one_run = one_run or not header.roles.isdisjoint(("algorithm", "choice"))
    found = []
    for at, column in enumerate(header.columns):
        match = _VARIANT.search(column.name) if is_variant(column) else None
        if match is not None and not (match["machine"] and one_run):
            found.append((at, match["machine"] is not None))
    return found


def part_of(column: Column) -> Collective | None:
    """Return the collective of which a column of sizes has a rank's part of the size of a call."""
    return _OF_ONE_RANK.get(re.sub(r"[^a-z]", "", column.name.lower()))


@lru_cache(_KEPT)
def header_of(line: str) -> Header | None:
    """Return the header in `line`; None if it is not the header of a table of measurements."""
    if len(line) > MOST_CHARACTERS:
        return None
    if not may_name_size(line):
        return None
    body = line.strip().removeprefix("#") if "\t" not in line else line
    for separator in separators_of(body):
        cells = cells_of(body, separator)
        plain = separator == " " and not all(map(_may_be_known, cells))
        if plain and (len(_ALIGNED.split(body.strip())) < _LEAST_KNOWN or len(body) > _LONGEST):
            continue
        columns = _with_only_time([column_of(cell) for cell in cells])
        header = _with_only_size(Header(separator, columns))
        columns, roles = header.columns, header.roles
        runs = header.runs()
        known = sum(bool(column.role) for column in (runs[0][1] if runs else header).columns)
        times = bool(roles & (MEASURED | RAW) or runs)
        times = times or (separator == "|" and bool(header.times_named))
        measured = "size" in roles and times and len(columns) > 1
        if not (measured or len(roles & RAW) > 1) or _RULES & _unknown(columns):
            continue
        values = sum(bool(_VALUE.fullmatch(column.name)) for column in columns)
        if values > 1 and not roles & MEASURED:
            continue
        if known < 2 and not header.times_named:
            continue
        # Names apart by several blanks may be unknown beside those of several runs.
        if separator == " " and (known < len(columns) or known < _LEAST_KNOWN) and not runs:
            continue
        if separator == " " and any(is_unit(column.name.strip("()[]")) for column in columns):
            continue  # the units below a line of names
        return header
    return None


@lru_cache(_KEPT)
def may_name_size(line: str) -> bool:
    """Return whether a line has a word that one of the columns of any table has."""
    return _HINT.search(line) is not None or has_foreign_name(line)


def _may_be_known(cell: str) -> bool:
    """Return whether a cell of a header has a role, or may have one as that of a run."""
    column = column_of(cell)
    return bool(column.role or _heading_of(column)[1])


def _with_only_size(header: Header) -> Header:
    """Return a header with the role of its only column of sizes sent or received, if it has one.

    Only where the rows name their collective, as a rank's part is the size of a call or is not.
    """
    found = [at for at, column in enumerate(header.columns) if part_of(column) is not None]
    if len(found) != 1 or "size" in header.roles or not header.raw:
        return header
    columns = [*header.columns]
    columns[found[0]] = columns[found[0]]._replace(role="size")
    return header._replace(columns=tuple(columns))


def _with_only_time(columns: list[Column]) -> tuple[Column, ...]:
    """Return columns with the role of the only one with a unit of time, such as `Wall time (s)`.

    Other words than that in its name may say that it is not the time of a call.
    """
    headings = [_heading_of(column) for column in columns]
    for at, (heading, role) in enumerate(headings):
        others = [name for name, other in headings if other == role and name != heading]
        is_only = role not in {column.role for column in columns}
        if is_only and _MEAN.fullmatch(heading) and all(map(_NOT_ONE_CALL.search, others)):
            columns[at] = columns[at]._replace(role=role)
    timed = [
        at
        for at, column in enumerate(columns)
        if time_unit(column.unit) and column.role != "spread"
    ]
    means = [at for at in timed if _MEAN.search(columns[at].name)]
    if len(means) == 1 and all(_STATISTIC.search(columns[at].name) for at in timed):
        timed = means
    rated = [at for at, column in enumerate(columns) if _heading_of(column)[1].endswith("bw")]
    if len(rated) == 1 and not timed and not any(column.role in MEASURED for column in columns):
        # `all_reduce busbw (GB/s)` is that of the only collective.
        heading, role = _heading_of(columns[rated[0]])
        if re.sub(r"[^a-z]", "", heading.lower().removesuffix("_perf")) in _COLLECTIVES:
            columns[rated[0]] = columns[rated[0]]._replace(role=role)
    if rated:
        own = [at for at, (_, role) in enumerate(headings) if role]
        words = {headings[at][0] for at in own}
        only = len(timed) == 1 and len(words) == 1 and re.match(r"[nr]ccl\b", min(words), re.I)
        if only and not any(column.role in MEASURED for column in columns):
            return tuple(
                column._replace(role=headings[at][1]) if at in own else column
                for at, column in enumerate(columns)
            )
        return tuple(columns)  # it is the time of a run
    if len(timed) == 1 and not (column := columns[timed[0]]).role:
        heading, role = _heading_of(column)
        if role == "time" and _TIME_WORDS.search(column.name) and _are_of_one_call([heading]):
            columns[timed[0]] = column._replace(role="time")
    return tuple(columns)


def _heading_of(column: Column) -> tuple[str, str]:
    """Return what a column of times or bandwidths is named for beside that, and its role."""
    if column.role or NO_RUN.search(column.name):
        return "", ""
    name = column.name if column.part is None else _PARTS.sub("", column.name)
    name, role = _without_unit(_PLACEMENT.sub(" ", name) if column.placement else name), ""
    if time_unit(column.unit):
        name, role = _TIME_WORDS.sub("", name), "time"
    elif (rate := _RATE_WORDS.search(name)) is not None:
        name, role = name.replace(rate[0], ""), f"{rate['kind'].lower()}bw"
        name = _MEDIAN.sub("", _MEAN.sub("", name)).strip(" _-") or name
    name = name.strip(" _-:.,[]*`\"'").removesuffix("()").strip()
    return name if name.endswith(")") and "(" in name[1:] else name.strip("() "), role


def _are_of_one_call(headings: list[str]) -> bool:
    """Return whether each heading may name runs: none names a part of a call or a statistic."""
    plain = {re.sub(r"[^a-z]", "", heading.removesuffix("_perf")) for heading in headings}
    if len(plain) == len(headings) and plain <= _COLLECTIVES:
        return True
    if all(_SCALE.fullmatch(heading) for heading in headings):
        return True
    others = [_OF_COLLECTIVE.sub("", heading) for heading in headings]
    if all(other and other != heading for other, heading in zip(others, headings, strict=True)):
        headings = others
    return not any(_NOT_ONE_CALL.search(_SETTING.sub("", heading)) for heading in headings)


def _unit_of(text: str) -> re.Match[str] | None:
    """Return the unit in a name, in brackets or at its end; None without one."""
    for pattern in (_UNIT, _SUFFIX, _BARE):
        for match in pattern.finditer(text.strip(" _") if pattern is _SUFFIX else text):
            if not (unit := match["unit"].strip()) or is_unit(unit):
                return match
    return None


def _without_unit(name: str) -> str:
    """Return a name without its unit."""
    match = _unit_of(name)
    return name if match is None else name.replace(match.group(), " ")


def _unknown(columns: tuple[Column, ...]) -> set[str]:
    """Return the plain names of the columns without a role."""
    return {_plain(column.name) for column in columns if not column.role}


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


@lru_cache(_KEPT)
def column_of(cell: str) -> Column:
    """Return the column that a cell of a header names."""
    text, unit, placement, part = cell, "", "", None
    text = in_english(text)
    if (listed := _PARTS.search(text)) is not None:
        parts = re.split(r"\s?/\s?", listed["parts"])
        means = [at for at, name in enumerate(parts) if _MEAN.fullmatch(name)]
        means += [at for at, name in enumerate(parts) if name.lower() in ("median", "med", "p50")]
        if means:
            part = means[0], len(parts)
            text = text[: listed.start()] + " " + text[listed.end() :]
    if (place := _PLACEMENT.search(text)) is not None:
        placement = "out-of-place" if place["out"] else "in-place"
        text = text[: place.start()] + " " + text[place.end() :]
    while (match := _unit_of(text)) is not None:
        if match.re is _SUFFIX:
            text = text.strip(" _")
        unit = unit or match["unit"].strip().replace("_", "/")
        text = text[: match.start()] + " " + text[match.end() :]
    plain = _plain(text)
    if re.fullmatch(r"|s|[umn]s(?:ecs?)?", plain) and not unit and time_unit(cell.strip()):
        plain, unit = "", cell.strip()
    if not plain and (time_unit(unit) or bandwidth_unit(unit)):
        # A column with no name but a unit.
        plain = "time" if time_unit(unit) else "bandwidth"
    if plain in _SIZE_UNITS and not unit:
        plain, unit = "size", cell.strip()
    if not unit and plain in ("sizeb", "sizebytes", "sizeinbytes", "bytes", "nbytes"):
        unit = "B"
    # A share or a difference, such as `Δ time` and `time %`, is none of the columns.
    if time_unit(unit) and re.fullmatch(r"p(?!50)\d{2,4}", plain):
        return Column(cell, "spread", unit, placement)
    role = "" if re.search(r"[^\x00-\x7fµμ]|%|\bdelta\b", text.lower()) else _ROLES.get(plain, "")
    return Column(cell, role, unit, placement, part)


def joined_cells(cells: list[str], separator: str) -> str:
    """Return a line of a table with these cells."""
    if separator == "|":
        return f"|{'|'.join(cells)}|"
    return ("  " if separator == BLANKS else separator).join(cells)


def separates_runs(name: str) -> bool:
    """Return whether the name of a column says that its values are of different runs."""
    return _SEPARATES.search(name) is not None


def single_values(columns: Sequence[Column], cells: list[str]) -> list[str]:
    """Return the cells of a row, of several measured values in one the mean that its column names.

    Raises CellError for a cell whose values the column does not name.
    """
    found = list(cells)
    for at, (column, cell) in enumerate(zip(columns, cells, strict=False)):
        if column.role in MEASURED and "/" in cell and SEVERAL.fullmatch(cell):
            values = cell.split("/")
            if column.part is None or len(values) != column.part[1]:
                raise CellError(
                    f"{column.name!r}: {visible(cell, 40)!r} has {len(values)} values",
                    "write a row for each, or name them in the header, as in"
                    f" '{_PARTS.sub('', column.name).strip()} avg/min/max'",
                )
            found[at] = values[column.part[0]].strip()
    return found


def with_units(columns: Sequence[Column], cells: list[str]) -> tuple[Column, ...] | None:
    """Return columns with the units in the line below their names; None for another line."""
    words = [cell.strip("()[]- ") for cell in cells]
    if sum(map(bool, words)) < 2 or not all(is_unit(word) for word in words if word):
        return None
    return tuple(
        column._replace(unit=word) if word else column
        for column, word in zip(columns, words, strict=True)
    )


def is_unit(text: str) -> bool:
    """Return whether `text` is a unit of size, time or bandwidth."""
    return (
        time_unit(text) is not None
        or bandwidth_unit(text.replace("_", "/")) is not None
        or _SIZE_UNIT.fullmatch(text) is not None
    )
