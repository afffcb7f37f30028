# SPDX-License-Identifier: Apache-2.0
"""Functions for rules that the expression language cannot express.

Each function reads the facts of all nodes.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

Values = Mapping[str, Any]
"""Values of one node's facts by name."""

SLOW_PAIR = 0.85
"""A pair of nodes is slow if its bandwidth is below this share of the median of comparable pairs.

In a healthy fabric the bandwidths of pairs differ by up to 5 %.
"""


class CodeFinding(NamedTuple):
    """Result of a function in this module.

    `sentences` holds each finding as a sentence with the names of its nodes. `missing` names facts
    that the function needs and that are unknown. If there is no sentence and `missing` is not
    empty, the verdict is CANNOT_TELL.
    """

    sentences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    missing: tuple[str, ...] = ()


class Code(NamedTuple):
    """A function and the facts that it reads (`needs`)."""

    run: Callable[[Mapping[str, Values]], CodeFinding]
    needs: tuple[str, ...]


def slow_pairs(nodes: Mapping[str, Values]) -> CodeFinding:
    """Find slow pairs of nodes, if each of the two nodes also has a pair that is not slow.

    For such a pair the network path is slow, not a node. The bandwidth of a pair is the highest of
    its runs with the same collective, size and number of ranks. Only such pairs are compared, and
    only if there are 4 or more. If no such pairs exist, the result names `tests` as missing.
    """
    known = [values["tests"] for values in nodes.values() if values.get("tests") is not None]
    runs: dict[Any, dict[tuple[str, ...], float]] = defaultdict(dict)
    for tests in known:
        for test in tests:
            hosts = tuple(sorted(set(test.get("hosts") or ())))
            busbw = test.get("peak_busbw_gb_per_s")
            if len(hosts) == 2 and busbw is not None:
                alike = (test.get("collective"), test.get("peak_bytes"), test.get("ranks"))
                runs[alike][hosts] = max(busbw, runs[alike].get(hosts, 0.0))
    sentences: list[tuple[str, tuple[str, ...]]] = []
    enough = False
    for pairs in runs.values():
        # With fewer than 4 pairs, the nodes of a slow pair are in too few other pairs. Then a slow
        # node and a slow path look the same.
        if len(pairs) < 4:
            continue
        enough = True
        sentences += _slow(pairs)
    return CodeFinding(tuple(sentences), () if enough else ("tests",))


def _slow(pairs: Mapping[tuple[str, ...], float]) -> list[tuple[str, tuple[str, ...]]]:
    limit = SLOW_PAIR * statistics.median(pairs.values())
    best: dict[str, float] = defaultdict(float)
    for hosts, busbw in pairs.items():
        for host in hosts:
            best[host] = max(best[host], busbw)
    found = []
    for hosts, busbw in sorted(pairs.items()):
        if busbw < limit and all(best[host] >= limit for host in hosts):
            words = (
                f"{hosts[0]} with {hosts[1]}: {busbw:.3g} GB/s; with others {hosts[0]} reaches "
                f"{best[hosts[0]]:.3g} and {hosts[1]} {best[hosts[1]]:.3g}"
            )
            found.append((words, hosts))
    return found


def split_shared_memory(nodes: Mapping[str, Values]) -> CodeFinding:
    """Find containers on one host (same boot id) that do not share /dev/shm.

    Between such containers NCCL uses neither P2P nor shared memory (`shmDev` in transport/p2p.cc,
    NCCL 2.30).
    """
    hosts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    lacking = set()
    for name, values in nodes.items():
        boot, device = values.get("node.boot_id"), values.get("node.shm_device")
        if boot is None or device is None:
            lacking |= {key for key in ("node.boot_id", "node.shm_device") if key not in values}
        else:
            hosts[boot].append((name, device))
    sentences = []
    for members in hosts.values():
        if any(a[1] != b[1] for a, b in combinations(members, 2)):
            devices = len({device for _, device in members})
            words = f"{len(members)} containers of one host have {devices} different /dev/shm"
            sentences.append((words, tuple(sorted(name for name, _ in members))))
    return CodeFinding(tuple(sentences), tuple(sorted(lacking)))


ASKED = ("gpus", "gpu.driver", "hcas", "node.modules")
"""Facts that a node's files should have if the files of other nodes have them."""
MOST_KNOW = 0.9
"""A missing fact (not `gpus`) is a finding if at least this share of the nodes has the fact."""


def nodes_not_read(nodes: Mapping[str, Values]) -> CodeFinding:
    """Find nodes whose files have no facts, or lack facts that the other nodes have.

    The collection on such a node failed or stopped early. A missing `gpus` is a finding if at least
    one other node has `gpus`. Another missing fact of ASKED is a finding if the share MOST_KNOW of
    the nodes has that fact. Only nodes with `node.collected` count; at least two are needed.
    """
    own = {name: values for name, values in nodes.items() if values.get("node.collected")}
    if len(own) < 2:
        return CodeFinding(missing=("node.collected",))
    empty = {name for name, values in own.items() if values.keys() <= {"node.collected"}}
    lacking: dict[str, list[str]] = defaultdict(list)
    for fact in ASKED:
        without = {name for name, values in own.items() if fact not in values} - empty
        known = len(own) - len(without) - len(empty)
        if known and (fact == "gpus" or known >= MOST_KNOW * (len(own) - len(empty))):
            for name in sorted(without):
                lacking[name].append(fact)
    by_words: dict[str, list[str]] = defaultdict(list)
    for name in sorted(empty):
        by_words["nothing was read of it"].append(name)
    for name, missing in lacking.items():
        by_words[f"not known, as it is of others: {', '.join(missing)}"].append(name)
    return CodeFinding(tuple((words, tuple(names)) for words, names in by_words.items()))


CODE: Mapping[str, Code] = MappingProxyType(
    {
        "nodes_not_read": Code(nodes_not_read, ("node.collected", *ASKED)),
        "slow_pairs": Code(slow_pairs, ("tests",)),
        "split_shared_memory": Code(split_shared_memory, ("node.boot_id", "node.shm_device")),
    }
)
"""All functions, by the name that the field `code` of a rule names."""
