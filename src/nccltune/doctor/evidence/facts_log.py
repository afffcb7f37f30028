# SPDX-License-Identifier: Apache-2.0
"""Facts of NCCL's log, of NCCL's diagnostics and of outputs of nccl-tests."""

import io
import re
from collections import Counter, defaultdict
from typing import Any

from nccltune.doctor.evidence.parsers.nccl_init import parse_init
from nccltune.doctor.evidence.parsers.nccl_lines import NcclLines, parse_nccl_lines
from nccltune.doctor.evidence.parsers.prose import (
    containers_of_a_node,
    described_hang,
    workarounds,
)
from nccltune.doctor.evidence.parsers.result_rows import has_rows
from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.evidence.raw import NodeEvidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.log import (
    LOG_BOOTSTRAP,
    LOG_CALLS_APART,
    LOG_COLL_CHANNELS,
    LOG_CONTAINERS,
    LOG_FABRIC_FAULTS,
    LOG_FABRIC_NODES,
    LOG_GDR_DISABLED,
    LOG_GDR_LACKING,
    LOG_GPU_NAMES,
    LOG_GRAPHS,
    LOG_HANGS,
    LOG_HOST_VERSIONS,
    LOG_INIT_TIMES,
    LOG_INTERFACES,
    LOG_LINES,
    LOG_NET,
    LOG_NET_DEVICES,
    LOG_NET_RELAXED_ORDERING,
    LOG_NODES,
    LOG_NVLINK_DOMAINS,
    LOG_NVLS_CHANNELS,
    LOG_RANKS,
    LOG_RCCL,
    LOG_SETTINGS_APART,
    LOG_SHARED_NAMES,
    LOG_TUNER_RULES,
    LOG_TUNER_SCALES,
    LOG_UNFINISHED,
    LOG_VIAS,
    LOG_WORKAROUNDS,
    LogSettingApart,
    LogTransport,
    LogTunerRule,
)
from nccltune.doctor.facts.results import RAS_CHECKS, TESTS, NcclTest, RasCheck
from nccltune.doctor.facts.settings import NCCL_VERSION
from nccltune.formats.nccl_log.calls import LoggedCall, read_calls
from nccltune.formats.nccl_log.diagnostics import read_diagnostics
from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_log.shared_settings import shared_settings
from nccltune.formats.nccl_tests.json_results import read_json
from nccltune.formats.nccl_tests.text import read_text
from nccltune.formats.reading.context import Context, ReadOptions
from nccltune.formats.reading.file_names import named_choice
from nccltune.formats.reading.file_report import FileReport
from nccltune.model.choice import DEFAULT, Choice, parse_algorithm
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample
from nccltune.model.scale import count

_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)")
_ROW_OR_END = re.compile(
    r"\b\d+\s+\d+\s+(?:u?int|half|float|double|bf|f8)|Test (?:NCCL |CUDA |MPI |)failure "
    r"|# Avg bus bandwidth|# Collective test concluded|# Out of bounds values"
)
_DEVICE = re.compile(
    r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(?P<host>\S{1,255})\s+device"
    r"(?:\s+\d+ \[[^\]]{1,40}\] (?P<name>\S[^\n]{0,80}))?"
)
_MOST_MESSAGES = 2000
_GDR_OFF = re.compile(r"(NET/(?!(Fast)?Socket).*)?GPU Direct RDMA Disabled for HCA(?! \d+ .hfi1)")
_RECEIVED = re.compile(r"-> \d{1,9}\[(?P<gpu>\w{1,12})\] \[receive\] via NET/IB/\S{1,40}")
_RCCL = (b"RCCL version", b"ibrccl", b"HIP failure", b"/hipify/", b"memory_peers/amdkfd")
_SOCKET, _NET = (
    b"NET/Socket : Using",
    re.compile(rb"NET/(?:IB|OFI) ?:? (?:Using|Selected)|via NET/(?!S)|network .{1,40} not found"),
)
_VIRTUAL = re.compile(
    r"lo$|docker|br-|virbr|veth|podman|cni|flannel|cali|lxc|lxd|tun|tap|ip6tnl|tailscale|wg\d|zt|"
    r"vxlan|kube|nodelocaldns|dummy|CloudflareWARP"
)
_ADDRESS = re.compile(
    r"(?:Bootstrap ?: Using|NET : Using interface) ?(?:\[0\])?(?P<interface>[^\s:]{1,60}):"
    r"(?P<address>\d{1,3}(?:\.\d{1,3}){3})<"
)
_TUNER_SCALE = re.compile(
    r"Initializing tuner for (?P<nodes>\d{1,9}) nodes, (?P<ranks>\d{1,9}) ranks"
)
_TUNER_RULE = re.compile(
    r"(?P<text>Loaded config: .{1,200}? channels=(?P<channels>-?\d{1,9}) "
    r"nodes=(?P<nodes>-?\d{1,9}) ranks=(?P<ranks>-?\d{1,9})\b.{0,80})"
)


def add_logs(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `log.*`, `nccl.version`, `ras.checks` and `tests`."""
    logs = [(raw, evidence.parse(raw, parse_nccl_lines)) for raw in evidence.all("log")]
    logs = [
        (raw, log) for raw, log in logs if log.warnings or log.messages or log.version or log.vias
    ]
    if logs:
        _logs(facts, logs)
        _starts(evidence, facts)
        _tuner(facts)
        _calls(evidence, facts)
    checks = _checks(evidence)
    if checks is not None:
        facts.add(RAS_CHECKS, *checks)
    _names(evidence, facts)
    posts = evidence.posts()
    named = {one.key: one for raw in posts for one in evidence.parse(raw, workarounds)}
    if posts:
        facts.add(LOG_WORKAROUNDS, list(named.values()), posts[0].place())
    tests = [record for raw in evidence.all("test") for record in _tests(evidence, raw)]
    if tests:
        facts.add(TESTS, tests, evidence.all("test")[0].place())


def _logs(facts: Facts, logs: list[tuple[Raw, NcclLines]]) -> None:
    raw, log = max(logs, key=lambda one: one[1].ranks or 0)
    place = raw.place()
    warnings = [message for _, one in logs for message in one.warnings]
    messages = [message for _, one in logs for message in one.messages]
    facts.add(LOG_LINES, [*warnings, *messages][:_MOST_MESSAGES], place)
    disabled = [one for one in (*warnings, *messages) if _GDR_OFF.match(one.text or "")]
    facts.add(LOG_GDR_DISABLED, disabled, place)
    vias: Counter[tuple[str, str]] = Counter()
    for _, one in logs:
        vias.update(one.vias)
    if vias:
        facts.add(
            LOG_VIAS,
            [
                LogTransport(direction=way, via=via, gdr="GDRDMA" in via, count=times)
                for (way, via), times in vias.items()
            ],
            place,
        )
    version = log.version or next((one.version for _, one in logs if one.version), None)
    net = log.net
    # NCCL before 2.7 has no line 'Using network'.
    if net is None and all(_SOCKET in x.data and not _NET.search(x.data) for x, _ in logs):
        net = "Socket"
    for text, name in ((NCCL_VERSION, version), (LOG_NET, net), (LOG_BOOTSTRAP, log.bootstrap)):
        if name is not None:
            facts.add(text, name, place)
    for counted, number in (
        (LOG_RANKS, log.ranks),
        (LOG_NODES, log.nodes),
        (LOG_COLL_CHANNELS, log.coll_channels),
        (LOG_NVLS_CHANNELS, log.nvls_channels),
    ):
        if number is not None:
            facts.add(counted, number, place)
    if log.net_devices is not None:
        facts.add(LOG_NET_DEVICES, log.net_devices, place)
        real = ",".join(name for name in log.net_devices if not _VIRTUAL.match(name))
        if real and log.net == "Socket":
            facts.add(LOG_INTERFACES, real, place)
    if any(word in one.data for one, _ in logs for word in _RCCL):
        facts.add(LOG_RCCL, True, place)
    if log.relaxed_ordering is not None:
        facts.add(LOG_NET_RELAXED_ORDERING, log.relaxed_ordering, place)
    if log.graphs:
        facts.add(LOG_GRAPHS, log.graphs, place)


def _starts(evidence: NodeEvidence, facts: Facts) -> None:
    """Add how communicators started. Logs of single processes count as one log."""
    raws = evidence.all("log")
    whole = raws[0]
    if len(raws) > 1:
        whole = raws[0]._replace(data=b"\n".join(raw.data for raw in raws))
    found = evidence.parse(whole, parse_init)
    place = raws[0].place()
    shared = evidence.parse(whole, shared_settings)
    if (versions := shared.host_versions()) is not None:
        facts.add(LOG_HOST_VERSIONS, versions, place)
    if (nodes := shared.nodes()) and not facts.value(LOG_NODES):
        facts.add(LOG_NODES, nodes, place)
    apart = shared.apart()
    if apart is not None:
        facts.add(
            LOG_SETTINGS_APART,
            [LogSettingApart(name=one.name, said=one.said) for one in apart],
            place,
        )
    if (words := evidence.parse(whole, containers_of_a_node)) is not None:
        facts.add(LOG_CONTAINERS, words, place)
    if lacking := evidence.parse(whole, _lacking_gdr):
        facts.add(LOG_GDR_LACKING, lacking, place)
    if names := evidence.parse(whole, _shared_names):
        facts.add(LOG_SHARED_NAMES, names, place)
    facts.add(LOG_HANGS, evidence.parse(whole, described_hang), place)
    if found.unfinished is not None:
        facts.add(LOG_UNFINISHED, found.unfinished, place)
    if found.times is not None:
        facts.add(LOG_INIT_TIMES, [found.times], place)
    if found.fabric_nodes is not None:
        facts.add(LOG_FABRIC_NODES, found.fabric_nodes, place)
    if found.fabric_faults is not None:
        facts.add(LOG_FABRIC_FAULTS, found.fabric_faults, place)
    if found.nvlink_domains is not None:
        facts.add(LOG_NVLINK_DOMAINS, found.nvlink_domains, place)


def _lacking_gdr(text: str) -> list[str]:
    having: defaultdict[str, set[str]] = defaultdict(set)
    lacking: defaultdict[str, set[str]] = defaultdict(set)
    for line in text.split("\n") if "/GDRDMA" in text else ():
        if (match := _RECEIVED.search(line)) and (writer := find_log_line(line)):
            (having if "GDRDMA" in match[0] else lacking)[match["gpu"]].add(writer["host"])
    found = {host for gpu, hosts in lacking.items() if having[gpu] for host in hosts}
    return sorted(found - set().union(*having.values()))


def _shared_names(text: str) -> list[str]:
    found: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for line in text.split("\n") if "Using " in text else ():
        if (match := _ADDRESS.search(line)) and (writer := find_log_line(line)):
            found[writer["host"], match["interface"]].setdefault(match["address"], writer["pid"])
    return [
        f"{host}: {interface} has {', '.join(list(of)[:4])}"
        for (host, interface), of in found.items()
        if len(set(of.values())) == len(of) > 1
    ]


def _tuner(facts: Facts) -> None:
    """Add the rules of NVIDIA's example tuner plugin, and the scales they could apply to."""
    texts = [one.text or "" for one in facts.value(LOG_LINES) or []]
    scales = [(int(m["nodes"]), int(m["ranks"])) for t in texts if (m := _TUNER_SCALE.search(t))]
    largest = facts.value(LOG_NODES), facts.value(LOG_RANKS)
    if not scales and largest[0] is not None and largest[1] is not None:
        scales = [(largest[0], largest[1])]
    rules = [match for text in texts if (match := _TUNER_RULE.search(text))]
    if not rules:
        return
    place = facts[LOG_LINES.name].source
    if scales:
        words = [f"{count(nodes, 'node')}, {count(ranks, 'rank')}" for nodes, ranks in scales]
        facts.add(LOG_TUNER_SCALES, list(dict.fromkeys(words)), place)
    records = []
    for match in rules:
        nodes, ranks = int(match["nodes"]), int(match["ranks"])
        fits = any(nodes in (-1, one[0]) and ranks in (-1, one[1]) for one in scales)
        possible = -1 in (nodes, ranks) or nodes <= ranks
        records.append(
            LogTunerRule(
                text=match["text"],
                nodes=nodes,
                ranks=ranks,
                channels=int(match["channels"]),
                applies=fits if scales or not possible else None,
            )
        )
    facts.add(LOG_TUNER_RULES, records, place)


def _calls(evidence: NodeEvidence, facts: Facts) -> None:
    """Add the first call of each communicator in which its ranks differ."""
    texts = [text for raw in evidence.all("log") if "opCount" in (text := evidence.parse(raw, str))]
    if not texts:
        return
    made: dict[str, dict[str, dict[int, list[str]]]] = defaultdict(lambda: defaultdict(dict))
    ranks: dict[str, int] = {}
    for _, call in read_calls(io.BytesIO("\n".join(texts).encode())):
        if isinstance(call, LoggedCall) and call.function not in ("Send", "Recv"):
            ranks[call.communicator] = call.ranks
            calls = made[call.communicator][call.process]
            calls.setdefault(call.op, []).append(f"{call.function} of {call.count}")
    # Without an id, the parts of a communicator are known if the log has one of its size only.
    for number in set(ranks.values()):
        parts = [name for name in made if ranks[name] == number and "/" in name]
        if len(parts) == number == len({next(iter(made[name])) for name in parts}):
            made["/".join(parts)].update({k: v for name in parts for k, v in made[name].items()})
    found = []
    for members in made.values():
        for op in sorted(next(iter(members.values()))):
            if not all(op in calls for calls in members.values()):
                continue
            lists = [calls[op] for calls in members.values()]
            if len({len(calls) for calls in lists}) == 1 and any(x != lists[0] for x in lists):
                one = {", ".join(calls[op]): name for name, calls in reversed(members.items())}
                found.append(
                    f"opCount {op:x}: " + "; ".join(f"{y} calls {x}" for x, y in one.items())
                )
                break
    facts.add(LOG_CALLS_APART, found, evidence.all("log")[0].place())


def _names(evidence: NodeEvidence, facts: Facts) -> None:
    names: dict[str, None] = {}
    raws = [raw for item in ("test", "log", "output") for raw in evidence.all(item)]
    for raw in raws:
        for match in _DEVICE.finditer(evidence.parse(raw, str)):
            if match["name"]:
                names.setdefault(match["name"].strip())
    if names:
        facts.add(LOG_GPU_NAMES, list(names), raws[0].place())


def _checks(evidence: NodeEvidence) -> tuple[list[RasCheck], str] | None:
    found: list[RasCheck] = []
    source = ""
    for raw in evidence.all("diagnostics"):
        for report in evidence.parse(raw, _diagnostics):
            source = source or raw.place()
            found += [
                RasCheck(name=one.check, status="OK" if one.ok else "INFO", text=one.text)
                for one in report.results
            ]
    return (found, source) if found else None


def _diagnostics(text: str) -> list[Any]:
    return list(read_diagnostics(text.split("\n"))) if "NCCL DIAG " in text else []


_CUT_DEVICE = re.compile(r"^# +Rank +\d+ (?!.*\[)[^\n]*\s{0,20}`{0,3}\s{0,20}\Z", re.M)
"""A list of devices that ends within a line: the post is cut, and no test hangs."""
_STARTED = re.compile(r"# nThread (\d{1,4}) nGpus (\d{1,4}) ")


def _tests(evidence: NodeEvidence, raw: Raw) -> list[NcclTest]:
    text = evidence.parse(raw, str)
    # Pass the file name too: it may name the collective if the text does not.
    # The bus bandwidth of one rank counts no transfer.
    samples = [one for one in _samples(evidence, text, raw.source) if one.ranks != 1]
    averages = [float(match[1]) for match in _AVERAGE.finditer(text)]
    hosts = sorted({m["host"] for _, line in lines_of(text) if (m := _DEVICE.search(line))})
    by_collective: dict[str, list[Sample]] = {}
    for sample in samples:
        by_collective.setdefault(sample.collective.value, []).append(sample)
    if len(averages) != len(by_collective):
        averages = []
    log = evidence.parse(raw, parse_nccl_lines) if "NCCL " in text else None
    devices = log.net_devices if log is not None else None
    found = []
    for number, (_, group) in enumerate(by_collective.items()):
        rates = [(_busbw(one), one.bytes) for one in group if one.time_us > 0]
        peak, at = max(rates, default=(None, None))
        ranks = max((one.ranks or 0 for one in group), default=0) or None
        nodes = len(hosts) or max((one.nodes or 0 for one in group), default=0) or None
        found.append(
            NcclTest(
                file=raw.source,
                collective=group[0].collective.nccl_tests_name,
                nodes=nodes,
                hosts=hosts,
                ranks=ranks,
                min_bytes=min(one.bytes for one in group),
                max_bytes=max(one.bytes for one in group),
                sizes=len({one.bytes for one in group}),
                avg_busbw_gb_per_s=averages[number]
                if len(averages) == len(by_collective)
                else None,
                peak_busbw_gb_per_s=peak,
                peak_bytes=at,
                nics=len(devices) if devices else None,
                algorithm=_forced(log, raw.source),
            )
        )
    names = [match["name"] or "" for match in _DEVICE.finditer(text)]
    ranks = len(names)
    # A process lists all its GPUs, so fewer of them are a cut list, as is a name that ends early.
    is_cut = (
        _CUT_DEVICE.search(text) is not None
        or any(ranks % (int(at) * int(gpus) or 1) for at, gpus in _STARTED.findall(text))
        or any(names[-1] and name != names[-1] and name.startswith(names[-1]) for name in names)
    )
    if ranks > 1 and not found and not is_cut and _ROW_OR_END.search(text) is None:
        found.append(NcclTest(file=raw.source, hosts=hosts, nodes=len(hosts), ranks=ranks, sizes=0))
    return found


def _forced(log: NcclLines | None, name: str) -> str | None:
    """Return the only algorithm that NCCL was allowed to use.

    A value of NCCL_ALGO in the log decides. Without such a value, the file name decides. Return
    None if the value or the name does not name exactly one algorithm.
    """
    for setting in log.settings if log is not None else ():
        if setting.name == "NCCL_ALGO":
            try:
                return parse_algorithm(setting.value.lower()).value
            except InputError:
                return None
    named = named_choice(name)
    choice = named.choice if named is not None else None
    return choice.algorithm.value if isinstance(choice, Choice) else None


def _busbw(sample: Sample) -> float:
    """Return the bus bandwidth in GB/s, or the algorithm bandwidth if the number of ranks is
    unknown."""
    if not sample.ranks:
        return sample.bytes / (sample.time_us * 1e3)
    return sample.collective.busbw_gb_per_s(sample.bytes, sample.time_us, sample.ranks)


def _samples(evidence: NodeEvidence, text: str, name: str) -> list[Sample]:
    report = FileReport(name=name, asked=False)
    # With `started_here`, the reader does not look for the algorithm and protocol of a table. Facts
    # do not need them. Otherwise a table with contradicting algorithms would be refused.
    options = ReadOptions(study="doctor", choice=DEFAULT, started_here=True)
    context = Context(name=name, options=options, report=report)
    found: list[Sample] = []
    try:
        reader = read_json if text.lstrip().startswith("{") else read_text
        for batch in reader(io.BytesIO(text.encode()), context):
            found += batch.samples
    except InputError as error:
        report.refuse(error.message)
    if report.unreadable:
        evidence.problems.append(f"{name}: {count(report.unreadable, 'line')} not understood")
    if not found and report.error is None and has_rows(text):
        evidence.refuse(
            f"{name} (its table of nccl-tests)",
            "nothing names the collective; let the file's name begin with it: all_reduce-1.log",
        )
    if report.error is not None:
        evidence.refuse(name, report.error)
        return []
    return found
