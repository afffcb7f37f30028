# SPDX-License-Identifier: Apache-2.0
"""Find how many nodes and ranks a table of nccl-tests has, from all that states it."""

from typing import NamedTuple

from nccltune.formats.nccl_tests.rank_bounds import RankBounds
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.model.scale import count


class ScaleFound(NamedTuple):
    """The numbers of nodes and ranks.

    `emulated` states that the nodes are parts of one host, `shared` that ranks share a GPU.
    """

    nodes: int | None
    ranks: int | None
    emulated: bool
    shared: bool = False


class ScaleEvidence(NamedTuple):
    """The evidence of how many nodes and ranks a table has. A value of None is no evidence.

    - `listed`, `listed_hosts`: ranks and host names of a complete device list.
    - `machines`: the machines behind the host names; None if their number is unknown.
    - `last_rank`: the highest rank of an incomplete list. `last_device`: its device.
    - `logged`: (nodes, ranks) of NCCL's log. `logged_hosts`: the hosts of its ranks, if all log.
    - `given`: (nodes, ranks) of the user. `stated`: (nodes, ranks) in a file of results.
    - `commanded`, `commanded_nodes`: the ranks and nodes that a command line starts.
    - `titled`: the nodes in a heading or sentence above, the line of that, its ranks or 0.
    - `worded`: the ranks in words.
    - `headed`: the ranks in a heading. `earlier`: those of a command above an earlier table.
    - `named`: (nodes, ranks) in the file's name. `bounds`: the ranks that the rows allow.
    - `processes`: the number of processes in the device list. `one_visible`: each sees one GPU.
    """

    listed: int | None = None
    listed_hosts: int | None = None
    machines: int | None = None
    last_rank: int | None = None
    last_device: int = 0
    logged: tuple[int | None, int | None] = (None, None)
    logged_hosts: int | None = None
    given: tuple[int | None, int | None] = (None, None)
    stated: tuple[int | None, int | None] = (None, None)
    commanded: int | None = None
    commanded_nodes: int | None = None
    titled: tuple[int, int, int] | None = None
    worded: int | None = None
    headed: int | None = None
    earlier: int | None = None
    named: tuple[int | None, int | None] = (None, None)
    bounds: RankBounds | None = None
    processes: int = 1
    one_visible: bool = False


def find_scale(report: FileReport, line: int, evidence: ScaleEvidence) -> ScaleFound:
    """Return nodes and ranks, and add flags for doubts to `report`.

    The number of ranks is from the first of these sources that has it:

    1. a complete device list;
    2. NCCL's log;
    3. the table's bandwidths, if they allow only one number;
    4. an incomplete list, the command line, the user, if the bandwidths allow the number.

    The number of nodes is NCCL's count, if the log has it and its number of ranks is that of a
    complete list (or there is no such list). Otherwise it is the number of hosts in a complete
    list, or else the user's number. If machines share a host name, the user's number comes first.
    NCCL may count more nodes than the list has hosts (`NCCL_HOSTID`, containers), and a tuner gets
    that count.
    """
    evidence = _without_cut_list(evidence)
    hosts, logged, given = evidence.listed_hosts, evidence.logged, evidence.given
    ranks = evidence.listed or logged[1] or _by_table(report, line, evidence)
    one_name = hosts is not None and evidence.machines != hosts
    nodes = (given[0] or evidence.machines) if one_name else hosts or given[0] or evidence.stated[0]
    nodes = nodes or (None if one_name or ranks != logged[1] else evidence.logged_hosts)
    if nodes is None and not one_name:
        nodes = _stated_nodes(report, line, evidence, ranks)
    emulated = False
    if logged[0] is not None and (evidence.listed is None or logged[1] == evidence.listed):
        nodes = logged[0]
        emulated = hosts is not None and (evidence.machines or hosts) < logged[0]
        if emulated:
            report.flag(
                FlagKind.NOTE,
                f"NCCL counts {count(logged[0], 'node')} where the device list shows"
                f" {count(hosts or 0, 'host')}: NCCL's count is used",
                line,
            )
    elif one_name and evidence.machines is not None and given[0] is None:
        report.flag(
            FlagKind.SCALE_INFERRED,
            f"{count(evidence.machines, 'machine')} under {count(hosts or 0, 'host name')}: a GPU"
            " is listed more than once (if ranks shared GPUs, give --nodes)",
            line,
        )
    elif evidence.one_visible and given[0] is None and nodes == hosts:
        report.flag(
            FlagKind.NOTE,
            "each process lists its only GPU as device 0: the ranks of a host name are taken as"
            " GPUs of one node (if machines share a name, give --nodes)",
            line,
        )
    for found, asked, noun in ((nodes, given[0], "node"), (ranks, given[1], "rank")):
        if found is not None and asked is not None and found != asked:
            report.flag(
                FlagKind.SCALE_MISMATCH,
                f"ran on {count(found, noun)}, not on {asked} as given",
                line,
            )
    if nodes is None or ranks is None:
        _flag_unknown(report, line, nodes, ranks, evidence, one_name=one_name)
    if ranks == 1:
        report.flag(
            FlagKind.ONE_RANK,
            "one rank only: nothing was communicated, its times mean nothing",
            line,
        )
    elif nodes == 1 and evidence.processes > 1:
        report.flag(
            FlagKind.ONE_HOST, f"all {ranks} ranks ran on one host: nothing crossed a network", line
        )
    return ScaleFound(nodes, ranks, emulated, one_name and given[0] == nodes == hosts)


def _stated_nodes(
    report: FileReport, line: int, evidence: ScaleEvidence, ranks: int | None
) -> int | None:
    """Return the nodes by the command, the text above or the file's name, if they fit the ranks."""
    commanded = evidence.commanded_nodes
    if commanded and ranks in (evidence.commanded, commanded):
        return commanded
    titled, at, beside = evidence.titled or (None, 0, 0)
    named = evidence.named[0] if ranks else None
    # The devices of a node are numbered from 0; the last rank is on the last one of the last node.
    each = evidence.last_device + 1
    last = ranks // each if ranks and each > 1 and ranks == (evidence.last_rank or 0) + 1 else None
    last = last if last and ranks == last * each else None
    for nodes, words in (
        (titled, f"text in line {at}"),
        (named, "file's name"),
        (last, "last line of the device list"),
    ):
        each = (ranks or nodes) // nodes if nodes else 0
        # `64 GPU (8 node) runs` above a table of 96 ranks is of other runs.
        others = nodes is titled and ranks and beside not in (0, ranks, each)
        if nodes and (ranks or nodes) % nodes == 0 and not others:
            sentence = f"{count(nodes, 'node')} by the {words} (else give --nodes)"
            report.flag(FlagKind.NOTE, sentence, line)
            return nodes
    return None


def _without_cut_list(evidence: ScaleEvidence) -> ScaleEvidence:
    """Return the evidence without a truncated device list.

    A list without its last lines looks complete, but then the table's numbers need more ranks. If
    NCCL's log confirms the number of ranks in the list, the list is kept.
    """
    listed, bounds = evidence.listed, evidence.bounds
    if listed is None or bounds is None or bounds.rows_disagree or bounds.least <= listed:
        return evidence
    if evidence.logged[1] == listed:
        return evidence
    return evidence._replace(listed=None, listed_hosts=None, last_rank=listed - 1)


def _by_table(report: FileReport, line: int, evidence: ScaleEvidence) -> int | None:
    """Return the number of ranks without a complete list and a log; None if it is unknown."""
    bounds, last = evidence.bounds, evidence.last_rank
    claims = [
        ("the last line of the device list", None if last is None else last + 1),
        ("the file", evidence.stated[1]),
        ("the command line", evidence.commanded),
        ("the text above", evidence.worded),
        ("--ranks", evidence.given[1]),
    ]
    known = [(said, ranks) for said, ranks in claims if ranks]
    # These may be of a node or of another run, so they never contradict a table.
    weak = (
        ("a heading", evidence.headed),
        ("the command above an earlier table", evidence.earlier),
        ("the file's name", evidence.named[1]),
    )
    named = [(said, ranks) for said, ranks in weak if ranks]
    if bounds is None:
        if named and not known:
            sentence = f"{count(named[0][1], 'rank')} by {named[0][0]} (else give --ranks)"
            report.flag(FlagKind.SCALE_INFERRED, sentence, line)
        return next((ranks for _, ranks in (*known, *named)), None)
    if bounds.rows_disagree:
        report.flag(
            FlagKind.BANDWIDTH_MISMATCH,
            "no number of ranks gives the busbw of all rows: the table contradicts itself",
            line,
        )
        return None
    for said, ranks in known:
        if not bounds.allow(ranks) and said != "--ranks":
            report.flag(
                FlagKind.SCALE_MISMATCH,
                f"{said} states {count(ranks, 'rank')}, but size, time and busbw are those of"
                f" {bounds.words}",
                line,
            )
    fitting = next(((said, ranks) for said, ranks in known + named if bounds.allow(ranks)), None)
    found = bounds.exact or (fitting[1] if fitting else None)
    if found is not None:
        agrees = f", as {fitting[0]} states" if fitting else ""
        report.flag(
            FlagKind.SCALE_INFERRED,
            f"{count(found, 'rank')} by size, time and busbw{agrees}"
            + ("" if bounds.exact else f" (they allow {bounds.words})"),
            line,
        )
        return found
    asked = evidence.given[1]
    if asked is not None and not bounds.allow(asked):
        report.flag(
            FlagKind.SCALE_MISMATCH,
            f"size, time and busbw are those of {bounds.words}, not of {asked} as given",
            line,
        )
    return None


def _flag_unknown(
    report: FileReport,
    line: int,
    nodes: int | None,
    ranks: int | None,
    evidence: ScaleEvidence,
    *,
    one_name: bool,
) -> None:
    missing = [("--nodes", nodes, "nodes"), ("--ranks", ranks, "ranks")]
    nouns = " and ".join(noun for _, value, noun in missing if value is None)
    options = " and ".join(option for option, value, _ in missing if value is None)
    why = (
        "the device list is cut"
        if evidence.last_rank is not None
        else "found in no command, list or title"
    )
    if one_name and nodes is None:
        why = (
            "a host name lists one GPU several times: machines of one name, or ranks that share it"
        )
    bounds = evidence.bounds
    if ranks is None and bounds is not None and not bounds.rows_disagree:
        why += f"; its bandwidths are those of {bounds.words}"
    report.flag(
        FlagKind.SCALE_UNKNOWN,
        f"the number of {nouns} is unknown ({why}): give {options},"
        " else it is compared with nothing",
        line,
        doubtful=one_name and nodes is None,
    )
