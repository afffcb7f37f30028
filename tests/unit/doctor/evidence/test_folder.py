# SPDX-License-Identifier: Apache-2.0
"""Folders of collected files: layouts, hostile files, equal files."""

import os
import pickle
import re
from pathlib import Path

import pytest

from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.files import Unread, read_file
from nccltune.doctor.evidence.folder import put_file, read_folder
from nccltune.doctor.evidence.item_names import ALIASES, KNOWN
from nccltune.doctor.evidence.parsers.lspci import parse_lspci
from nccltune.doctor.evidence.raw import Cache, NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.model.errors import InputError
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, put


def only(path: Path) -> Facts:
    (found,) = folder_facts(path)
    return found


def test_the_docs_name_every_item() -> None:
    text = (Path(__file__).parents[4] / "docs/reference/collecting.md").read_text()
    words = set(re.findall(r"`([\w-]+)(?:\.(?:txt|xml|json))?`", text))
    named = {ALIASES.get(word.lower().replace("_", "-"), word) for word in words}
    assert named >= KNOWN


def test_hostile_files_are_counted(tmp_path: Path) -> None:
    node = tmp_path / "n1"
    put(node, "limits.txt", texts.LIMITS)
    put(node, "lspci.txt", b"\x7fELF\0\0\0\0" + bytes(100))
    put(node, "nccl_trace_rank_0", pickle.dumps({"pg_config": {}, "entries": []}, protocol=2))
    put(node, "status.txt", texts.STATUS.encode("utf-16"))
    put(node, "env.txt", b"NCCL_ALGO=\xff\xfe\xfa\n")
    put(node, "topology.txt", "<system version='1'>" + "<pci>" * 5000)
    put(node, "cloud-metadata.json", "[" * 100_000)
    put(node, "imex.txt", '{"nodes":' * 20_000)
    put(node, "notes.txt", "roses are red\n")
    put(node, "rank0.log.gz", b"\x1f\x8b\x08" + bytes(50))
    put(node, "deep/limits.txt", texts.LIMITS)
    put(node, ".hidden", "x")
    put(tmp_path, "outside", "NCCL_DEBUG=INFO\n")
    (node / "etc-nccl-conf.txt").symlink_to(tmp_path / "outside")
    (node / "dmesg.txt").symlink_to(node / "dmesg.txt")
    os.mkfifo(node / "modules.txt")
    (node / "cpuinfo.txt").symlink_to("/dev/zero")
    with (node / "nvlink.txt").open("wb") as file:
        file.truncate(64 << 20)
    other, found = folder_facts(tmp_path)
    assert other.node == tmp_path.name
    assert found.node == "n1"
    with pytest.raises(InputError, match="larger than 32 MiB") as large:
        put_file(NodeEvidence("n", live=False), node / "nvlink.txt", "nvlink.txt", asked=True)
    assert "head -c 15M" in str(large.value.hint)
    assert found.named("limits.open_files") == 1024
    assert found.named("limits.cpus") == [0, 1, 2, 3, 8]
    # The file has invalid bytes, but the setting is read.
    assert [one["name"] for one in found.named("settings")] == ["NCCL_ALGO"]
    unread = "\n".join(found.unread)
    for line in (
        "n1/lspci.txt: is a binary file",
        "n1/nccl_trace_rank_0: is a dump of PyTorch's Flight Recorder: nccltune workload show",
        "n1/etc-nccl-conf.txt: is a link, not followed",
        "n1/dmesg.txt: is a link, not followed",
        "n1/cpuinfo.txt: is a link, not followed",
        "n1/modules.txt: is no regular file",
        "n1/nvlink.txt: is larger than 32 MiB",
        "n1/notes.txt: its kind is not recognised",
        "n1/rank0.log.gz: is compressed (gzip)",
        "n1/cloud-metadata.json: is no JSON",
        "n1/imex.txt: 1 line not understood",
        "n1/topology.txt: ",
    ):
        assert line in unread, line
    assert "hidden" not in unread


def test_an_environment_of_a_shell(tmp_path: Path) -> None:
    text = "declare -x NCCL_ALGO=\"Ring\"\nexport NCCL_DEBUG='INFO'\nNCCL_NET=IB\nHOME=/\n"
    put(tmp_path, "env.txt", text)
    found = only(tmp_path).named("settings")
    assert {one["name"]: one["value"] for one in found} == {
        "NCCL_ALGO": "Ring",
        "NCCL_DEBUG": "INFO",
        "NCCL_NET": "IB",
    }


def test_a_path_that_is_no_folder_of_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "absent")
    put(tmp_path, "file", "x")
    with pytest.raises(InputError, match="is no folder"):
        read_folder(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is empty"):
        read_folder(tmp_path / "empty")


def test_folders_of_racks(tmp_path: Path) -> None:
    for name in ("rack1/node1", "rack1/node2", "rack2/node1", "rack2/node3"):
        put(tmp_path / name, "env.txt", "NCCL_NET=IB")
    put(tmp_path / "node9" / "logs", "nccl.log", texts.LOG)
    put(tmp_path / "node9" / "gpu", "nvidia-smi.txt", texts.SMI_CSV)
    nodes = [one.host for one in read_folder(tmp_path)]
    assert nodes == ["node9", "rack1/node1", "node2", "rack2/node1", "node3"]
    (found,) = (facts for facts in folder_facts(tmp_path) if facts.node == "node9")
    assert (len(found.named("gpus")), found.named("log.ranks")) == (2, 16)
    assert found.unused == []


def test_one_folder_of_files_of_many_nodes(tmp_path: Path) -> None:
    """File names contain the node's name: after or before that of the output, or alone."""
    for number in (1, 2, 3):
        put(tmp_path, f"behind/nvidia-smi.gpu-{number:02}.txt", texts.SMI_CSV)
        put(tmp_path, f"behind/dmesg-gpu-{number:02}.log", "[ 1.000000] pcie x\n")
        put(tmp_path, f"before/gpu{number}_nvidia-smi.txt", texts.SMI_CSV)
        put(tmp_path, f"alone/gpu{number}.txt", texts.SMI_CSV)
    put(tmp_path, "before/nccl.gpu2.100.log", texts.LOG)
    put(tmp_path, "before/job.sbatch", "#SBATCH -N 3\n")
    behind = {facts.node: facts for facts in folder_facts(tmp_path / "behind")}
    assert sorted(behind) == ["gpu-01", "gpu-02", "gpu-03"]
    assert all("gpus" in one and "kernel.log" in one for one in behind.values())
    before = {facts.node: facts for facts in folder_facts(tmp_path / "before")}
    assert sorted(before) == ["before", "gpu1", "gpu2", "gpu3"]
    assert "log.ranks" in before["gpu2"]
    assert [facts.node for facts in folder_facts(tmp_path / "alone")] == ["gpu1", "gpu2", "gpu3"]


def test_files_of_one_node_stay_together(tmp_path: Path) -> None:
    put(tmp_path, "nvidia-smi.txt", texts.SMI_CSV)
    put(tmp_path, "nvidia-smi-sm.txt", texts.SMI_SM)
    put(tmp_path, "counters.1.txt", "")
    put(tmp_path, "counters.2.txt", "")
    put(tmp_path, "rank0.log", texts.LOG)
    put(tmp_path, "rank1.log", texts.LOG)
    assert len(list(read_folder(tmp_path))) == 1


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    steer = "\x1b]0;title\x07\x1b[2J\x08"
    put(tmp_path, f"n{steer}/dmesg.txt", f"[1.0] pcie {steer}\n")
    put(tmp_path, f"n{steer}/{steer}.txt", "roses are red\n")
    found = only(tmp_path)
    assert all(fact.source.isprintable() for fact in found.values())
    text = found.named("kernel.log")[0]["text"]
    assert text.isprintable()
    assert found.node.isprintable()
    assert found.unread
    assert all(line.isprintable() for line in found.unread)


def test_files_without_a_node_folder_are_one_node(tmp_path: Path) -> None:
    put(tmp_path, "limits.txt", texts.LIMITS)
    assert only(tmp_path).node == tmp_path.name
    assert only(tmp_path)["limits.open_files"].source == "limits.txt:3"


def test_files_with_nearly_the_same_content_are_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counted(text: str) -> object:
        seen.append(len(text))
        return parse_lspci(text)

    monkeypatch.setattr("nccltune.doctor.evidence.facts_pci.parse_lspci", counted)
    for number in range(20):
        put(tmp_path, f"n{number:02}/lspci.txt", texts.LSPCI + "\n" * (number == 7))
    found = list(folder_facts(tmp_path))
    assert len(found) == 20
    assert len(seen) == 2
    assert {facts["pci.bridges"].source for facts in found} >= {"n00/lspci.txt", "n19/lspci.txt"}
    assert all(facts.named("pci.links") == found[0].named("pci.links") for facts in found)


def test_nodes_are_read_lazily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(tmp_path, f"n{number}/limits.txt", texts.LIMITS)
    opened: list[str] = []

    def noted(path: Path, most: int) -> bytes:
        opened.append(path.parent.name)
        return read_file(path, most)

    monkeypatch.setattr("nccltune.doctor.evidence.folder.read_file", noted)
    nodes = list(read_folder(tmp_path, cache=Cache()))
    assert [one.host for one in nodes] == ["n0", "n1", "n2"]
    assert opened == []
    assert facts_of(nodes[1]).named("limits.open_files") == 1024
    assert nodes[1].problems == []
    assert opened == ["n1"]


def test_files_of_a_node_are_bounded(tmp_path: Path) -> None:
    for number in range(510):
        put(tmp_path, f"n/{number:03}.log", texts.LOG)
    put(tmp_path, "n/zzz.txt", "x")
    (found,) = read_folder(tmp_path)
    assert len(found.all("log")) == 500
    assert found.problems == ["n/ (11 more files): only the first 500 files of a node are read"]


def test_files_are_read_whole_or_not(tmp_path: Path) -> None:
    put(tmp_path, "a", b"x" * 100)
    assert read_file(tmp_path / "a", 100) == b"x" * 100
    with pytest.raises(Unread, match="larger than"):
        read_file(tmp_path / "a", 99)
    with pytest.raises(Unread, match="^$"):
        read_file(tmp_path / "b")
    with pytest.raises(Unread, match="no regular file"):
        read_file(tmp_path)
    with pytest.raises(Unread):
        read_file(Path(f"{tmp_path}/a\0b"))
