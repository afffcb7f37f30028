# SPDX-License-Identifier: Apache-2.0
"""A folder of collected nodes: each broken one is named by a finding, no sound one is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nccltune.doctor.evidence.many_nodes import read_nodes
from nccltune.doctor.examine import examine
from nccltune.doctor.result import Examination, RuleVerdict
from nccltune.doctor.rulebase import rule_base
from nccltune.doctor.summary import unused_words, verdict_words
from nccltune.model.finding import Severity

HEAD = (
    "+---------------------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI {driver}             Driver Version: {driver}    CUDA Version: 12.8     |\n"
)
ROW = (
    "|   {index}  NVIDIA H100 80GB HBM3     On  |   00000000:{bus:02X}:00.0 Off |      {ecc} |\n"
    "| N/A   33C    P0             71W /  700W |       1MiB /  81559MiB |      0%      Default |\n"
)


def table(gpus: int = 8, driver: str = "570.86.10", ecc: int = 0) -> str:
    rows = (ROW.format(index=n, bus=0x10 + n, ecc=ecc if n == 3 else 0) for n in range(gpus))
    return HEAD.format(driver=driver) + "".join(rows)


def links(width: int = 16) -> str:
    rows = (f"{n}, 00000000:{0x10 + n:02X}:00.0, {width if n == 3 else 16}, 16" for n in range(8))
    return "index, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n" + "\n".join(rows)


def ports(state: str = "Active", rate: int = 400) -> str:
    text = ""
    for number in range(4):
        first = number == 0
        text += (
            f"CA 'mlx5_{number}'\n\tPort 1:\n\t\tState: {state if first else 'Active'}\n"
            f"\t\tPhysical state: LinkUp\n\t\tRate: {rate if first else 400}\n\t\tSM lid: 1\n"
            "\t\tLink layer: InfiniBand\n"
        )
    return text


MODULES = "Module                  Size  Used by\nnvidia_peermem 16384 0\nnvidia 56823808 100\n"
ADDRESS = "2: ens1: <BROADCAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP group default\n"
KERNEL = "[    1.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.10\n{line}"
COUNTERS = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:{errors}\n"
SOUND = {
    "nvidia-smi": table(),
    "gpu-links": links(),
    "ibstat": ports(),
    "lsmod": MODULES,
    "ip_addr": ADDRESS.format(mtu=9000),
    "dmesg": KERNEL.format(line=""),
    "counters": COUNTERS.format(errors=0),
}
FELL = "[  9.000000] NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off the bus.\n"
BROKEN: dict[str, dict[str, str | None]] = {
    "a GPU is missing": {"nvidia-smi": table(7), "gpu-links": None},
    "no GPU": {"nvidia-smi": "No devices were found\n", "gpu-links": None},
    "no driver": {
        "nvidia-smi": "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n",
        "gpu-links": None,
    },
    "mismatch": {"nvidia-smi": "Failed to initialize NVML: Driver/library version mismatch\n"},
    "no tool": {"nvidia-smi": "bash: nvidia-smi: command not found\n", "gpu-links": None},
    "lost": {
        "nvidia-smi": "Unable to determine the device handle for GPU0000:13:00.0: Unknown Error\n"
    },
    "off the bus": {"dmesg": KERNEL.format(line=FELL)},
    "narrow": {"gpu-links": links(8)},
    "driver": {"nvidia-smi": table(driver="550.54.15")},
    "memory": {"nvidia-smi": table(ecc=3)},
    "no peermem": {"lsmod": MODULES.replace("nvidia_peermem 16384 0\n", "")},
    "port down": {"ibstat": ports(state="Down")},
    "port slow": {"ibstat": ports(rate=200)},
    "errors": {"counters": COUNTERS.format(errors=5000)},
    "MTU": {"ip_addr": ADDRESS.format(mtu=1500)},
    "empty": {"nvidia-smi": "", "gpu-links": ""},
    "nothing": dict.fromkeys(SOUND),
    "cut": {"nvidia-smi": table()[:700], "gpu-links": None},
}
NAMES: dict[str, Callable[[str, str], str]] = {
    "folders": lambda node, item: f"{node}/{item}.txt",
    "upper case, no end": lambda node, item: f"{node}/{item.upper()}",
    "folders of racks": lambda node, item: f"rack{len(node) % 2}/{node}/{item}.log",
    "folders in a node's": lambda node, item: f"{node}/out/{item}.out",
    "names without a kind": lambda node, item: f"{node}/f{item[1:3]}",
    "one folder": lambda node, item: f"{item}-{node}.txt",
    "one folder, node first": lambda node, item: f"{node}_{item}.txt",
}


def broken(changes: dict[str, str | None]) -> dict[str, str]:
    """Return the files of a sound node with `changes`; None leaves a file out."""
    return {item: text for item, text in (SOUND | changes).items() if text is not None}


def write(root: Path, path: Callable[[str, str], str], nodes: dict[str, dict[str, str]]) -> None:
    for node, files in nodes.items():
        # A node without collected files is an empty folder.
        if not files and path(node, "x").startswith((f"{node}/", "rack")):
            (root / path(node, "x")).parent.mkdir(parents=True)
        for item, text in files.items():
            file = root / path(node, item)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def named(examined: Examination) -> set[str]:
    """Return the nodes that an error or a warning names."""
    return {
        node
        for judged in examined.of(RuleVerdict.FINDING)
        if judged.severity is not Severity.NOTE
        for item in judged.evidence
        for node in item.nodes
    }


@pytest.mark.parametrize("layout", NAMES)
def test_each_broken_node_is_named(layout: str, tmp_path: Path) -> None:
    nodes: dict[str, dict[str, str]] = {f"sound{n:03}": dict(SOUND) for n in range(40)}
    for number, changes in enumerate(BROKEN.values()):
        nodes[f"broken{number:03}"] = broken(changes)
    write(tmp_path, NAMES[layout], nodes)
    examined = examine(read_nodes(tmp_path), rule_base(), "")
    wanted = {f"broken{number:03}" for number in range(len(BROKEN))}
    if layout.startswith("one folder"):
        # A node without a file does not appear.
        wanted.discard(f"broken{list(BROKEN).index('nothing'):03}")
    assert named(examined) == wanted


@pytest.mark.parametrize("path", ["{node}/all.txt", "{node}.txt"])
def test_all_outputs_in_one_file(path: str, tmp_path: Path) -> None:
    """As `for node in ...; do ssh $node 'nvidia-smi; ibstat; ...' >$node.txt; done` writes them."""
    kinds = ["a GPU is missing", "no GPU", "no driver", "lost", "off the bus", "driver"]
    kinds += ["memory", "no peermem", "port down", "port slow", "MTU"]
    order = ("nvidia-smi", "ibstat", "lsmod", "ip_addr", "dmesg")
    nodes = {f"sound{n:03}": dict(SOUND) for n in range(20)}
    for number, kind in enumerate(kinds):
        changes = {item: text or "" for item, text in BROKEN[kind].items()}
        nodes[f"broken{number:03}"] = {**SOUND, **changes}
    for node, files in nodes.items():
        file = tmp_path / path.format(node=node)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"$ {item}\n{files[item]}" for item in order))
    examined = examine(read_nodes(tmp_path), rule_base(), "")
    assert named(examined) == {f"broken{number:03}" for number in range(len(kinds))}


def test_broken_nodes_are_named_where_they_are_the_majority(tmp_path: Path) -> None:
    kinds = ["no GPU", "no driver", "lost", "off the bus"]
    nodes: dict[str, dict[str, str]] = {}
    for number in range(30):
        nodes[f"n{number:03}"] = broken(BROKEN[kinds[number % 4]]) if number % 5 else dict(SOUND)
    write(tmp_path, NAMES["folders"], nodes)
    found = named(examine(read_nodes(tmp_path), rule_base(), ""))
    assert found >= {f"n{number:03}" for number in range(30) if number % 5}


def test_unused_files_are_listed_where_nothing_is_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        NAMES["folders"],
        {f"n{number}": {**SOUND, "notes": "x"} for number in range(1, 4)},
    )
    examined = examine(read_nodes(tmp_path), rule_base(), "")
    assert named(examined) == set()
    words = verdict_words(examined)
    assert words.startswith("nothing found in ")
    assert words.endswith(", but 3 files were not used")
    assert unused_words(examined) == ["notes.txt: its kind is not recognised — n[1-3]"]
