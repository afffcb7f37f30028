# SPDX-License-Identifier: Apache-2.0
"""Names of items, and the item that the name of a file identifies."""

import re

from nccltune.doctor.evidence.catalogue import COMMANDS, TEXTS, VALUES

INDEX = "collected"
"""Item with the notes of the collector: the inputs that were read, and those that were not."""
# Other names that people and tools give to the file of an item.
ALIASES = {
    "lspci-vvv": "lspci",
    "lsmod": "modules",
    "proc-modules": "modules",
    "proc-cmdline": "cmdline",
    "proc-cpuinfo": "cpuinfo",
    "proc-meminfo": "meminfo",
    "journalctl-k": "dmesg",
    "journal": "dmesg",
    "kern": "dmesg",
    "ulimit-a": "ulimit",
    "df": "df-shm",
    "df-dev-shm": "df-shm",
    "ip-addr": "addresses",
    "nvidia-smi-q-x": "nvidia-smi-q",
    "nvidia-smi-nvlink-s": "nvlink",
    "nvidia-smi-nvlink-e": "nvlink-errors",
    "nvidia-smi-nvlink": "nvlink",
    "nvidia-smi-topo-m": "topo",
    "nvidia-smi-topo": "topo",
    "topo-m": "topo",
    "nvidia-imex-ctl": "imex",
    "rdma-statistic-show": "rdma-statistic",
    "show-gids": "show_gids",
    "ibv-devinfo": "ibv_devinfo",
    "nccl-conf": "etc-nccl-conf",
    "topo-dump": "topology",
    "graph-dump": "graph",
    "host-lspci": "vm-host-lspci",
    "gcloud-describe": "gcloud",
    "ib-write-bw": "perftest",
    "ib-read-bw": "perftest",
    **{f"nvidia-smi-topo-p2p-{kind}": f"p2p-{kind}" for kind in "rwnap"},
    **{f"topo-p2p-{kind}": f"p2p-{kind}" for kind in "rwnap"},
}
KNOWN = frozenset(
    {
        *(values.name for values in VALUES),
        *(text.name for text in TEXTS),
        *(command.name for command in COMMANDS),
        *ALIASES.values(),
        *("env", "logind", "profiles", "libraries", "plugins", "services", "packages", "ethtool"),
        *("user-nccl-conf", "named-nccl-conf", "lscpu", "meminfo", "ulimit", "nvbandwidth"),
        *("dev-infiniband", "sysctl"),
        *("ibstat", "ibstatus", "rdma-link", "perfquery", "rdma-statistic", "pci-config"),
        *("topology", "graph", "given-topology", "given-graph"),
        # Items that nccltune 0.2 and older wrote. No rule needs them. They are listed because their
        # files would be reported as unknown.
        *("if_inet", "if_inet6"),
        *("cloud-metadata", "gcloud", "aws-topology", "aws-instance-type"),
        *("diagnostics", "rail-pings", "perftest", "p2p-test", "acs", "iblinkinfo", INDEX),
        *("nvlink-errors", "lspci-tree", "rocm-smi", "docker-inspect"),
    }
)
_READING = re.compile(r"[.-]\d{1,3}$")


def item_of_name(name: str) -> tuple[str, str]:
    """Return the item that a file name identifies ("" for none), and the suffix."""
    head, dot, tail = name.rpartition(".")
    stem, end = (head, f".{tail}".lower()) if dot and head else (name, "")
    stem = _stem(stem)
    # Accept etc-nccl.conf as well as etc-nccl-conf.txt.
    stem = f"{stem}-conf" if end == ".conf" else stem
    for one in (stem, _READING.sub("", stem)):
        known = ALIASES.get(one, one)
        if known in KNOWN:
            return known, end
    return named_part(stem)[0], end


# Without the endings of domains: a log may be named after its host.
_SOURCE = re.compile(
    r"\.(?:py[xi]?|pxd|pot?|c|cc|cpp|cxx|cuh?|h|hpp|hip|go|java|jsx?|tsx?|lua|rb|bzl|nix|proto"
    r"|cmake)(?:\.(?:old|bak|orig|in|j2|tmpl|template))?$",
    re.IGNORECASE,
)


def is_source(name: str) -> bool:
    """Return whether a file is the source of a program, or of its translations, by its name."""
    return _SOURCE.search(name) is not None


def _stem(stem: str) -> str:
    return stem.lower() if stem.lower() in KNOWN else stem.lower().replace("_", "-")


_NAMES = sorted({*KNOWN, *ALIASES} - {"env", "system", "net", "cpu", "devices"}, key=len)[::-1]
_NAMED = re.compile(
    r"(?:^|(?<=[-._]))(?:" + "|".join(re.escape(one) for one in _NAMES) + r")(?=$|[-._])"
)


def named_part(stem: str) -> tuple[str, str]:
    """Return the item in a name and the rest of the name: `("dmesg", "node7")` for `node7-dmesg`.

    If the name contains no item, return "" and the name.
    """
    plain = _stem(stem)
    match = _NAMED.search(plain)
    if match is None:
        return "", plain
    rest = f"{plain[: match.start()].strip('-._')}-{plain[match.end() :].strip('-._')}".strip("-")
    return ALIASES.get(match[0], match[0]), rest
