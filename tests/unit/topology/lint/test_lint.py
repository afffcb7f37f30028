# SPDX-License-Identifier: Apache-2.0
"""Each issue of `topo lint` on a file that has it, and files that have none."""

from pathlib import Path

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nccl_xml_rules import refusals
from nccltune.model.finding import Severity
from nccltune.topology.lint.check import LintResult, check_here, lint_files
from nccltune.topology.lint.issue import Issue
from tests.unit.formats.topology.test_sysfs import GPU, Machine, one_switch
from tests.unit.topology.samples import FOLDER, changed_text


def lint(*names: str) -> LintResult:
    return lint_files([(name, (FOLDER / f"{name}.xml").read_bytes()) for name in names])


def changed(name: str, *changes: tuple[str, str], count: int = -1) -> LintResult:
    """Return a sample with text replaced. Each replacement must change something."""
    return lint_files([("x.xml", changed_text(name, *changes, count=count).encode())])


def found(checked: LintResult) -> dict[str, Issue]:
    """Return the issues by id, without notes."""
    assert all(issue.hint and issue.message and issue.source for issue in checked.issues)
    return {
        issue.id: issue for issue in checked.issues if issue.severity is not Severity.NOTE
    }  # fmt: skip


def notes(checked: LintResult) -> set[str]:
    return {issue.id for issue in checked.issues if issue.severity is Severity.NOTE}


@pytest.mark.parametrize(
    "name",
    ["dgx", "switch-l40s", "broadcom", "nvlink-pairs", "superchip", "rccl", "skeleton-vm",
     "h200x4-graph"],
)  # fmt: skip
def test_nothing_wrong(name: str) -> None:
    checked = lint(name)
    assert found(checked) == {}
    assert not checked.is_bad


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h200x4-dump", {"link-width-zero"}),
        ("flat-vm", {"nvlink-self", "link-speed-unknown", "link-width-zero", "flat"}),
        ("skeleton-no-class", {"class-missing"}),
        ("flagcx", {"nic-behind-cpu"}),
        ("virtual-switches",
         {"virtual-switch", "link-width-odd", "link-width-zero", "link-speed-unknown"}),
    ],
)  # fmt: skip
def test_what_samples_have(name: str, expected: set[str]) -> None:
    checked = lint(name)
    assert set(found(checked)) == expected
    assert checked.is_bad


def test_messages_name_devices_line_and_fix() -> None:
    assert found(lint("flagcx"))["nic-behind-cpu"].hint.startswith("for management it is fine; ")
    issue = found(lint("virtual-switches"))["virtual-switch"]
    assert issue.severity is Severity.ERROR
    assert issue.line == 3
    assert issue.devices == ("0000:03:00.0", "0000:04:00.0", "0000:07:00.0", "0000:08:00.0")
    assert issue.message.startswith("0000:03:00.0, 0000:04:00.0, ")
    assert "0.19 GB/s" in issue.message
    assert "topo convert" in issue.hint


def test_bare_speeds() -> None:
    checked = changed("dgx", ("32.0 GT/s PCIe", "32.0 GT/s"))
    issue = found(checked)["link-speed-unknown"]
    assert len(issue.devices) == 24
    assert 'link_speed="32.0 GT/s PCIe"' in issue.hint


def test_idle_gpu() -> None:
    text = 'device="0x26b9" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="16.0'
    checked = changed("switch-l40s", (text, text.replace("16.0", "2.5")), count=1)
    assert set(found(checked)) == {"idle-gpu"}
    assert found(checked)["idle-gpu"].devices == ("0000:41:00.0",)


def test_a_card_slower_than_its_twins() -> None:
    text = 'link_speed="16.0 GT/s PCIe" link_width="16"><nic>'
    checked = changed("switch-l40s", (text, text.replace('"16">', '"8">')), count=1)
    assert set(found(checked)) == {"slower-than-twin"}
    assert found(checked)["slower-than-twin"].message == (
        "0000:4a:00.0: Gen4 x8, and the same model elsewhere in this machine has 24 GB/s"
    )


SWITCH_LINKS = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
# The uplink of a switch, up to its width.
UPLINK = 'subsystem_device="0xbeef" link_speed="16.0 GT/s PCIe" '


@pytest.mark.parametrize(
    ("name", "before", "after", "issue"),
    [
        ("skeleton-vm", 'link_speed="16 GT/s" link_width="16">', ">", "link-speed-missing"),
        ("switch-l40s", f'{UPLINK}link_width="16"', f'{UPLINK}link_width="4"', "narrow-switch"),
        ("dgx", "GenuineIntel", "HygonGenuine", "cpu-unknown"),
        ("nvlink-pairs", 'busid="0000:31:00.0"', 'busid="0000:17:00.0"', "+bus-id-twice"),
        ("nvlink-pairs", 'dev="1"', 'dev="0"', "+dev-twice"),
        ("nvlink-pairs", 'rank="1"', 'rank="0"', "+rank-twice"),
        ("dgx", 'system version="1"', 'system version="3"', "+version"),
        # RCCL's version is 2.
        ("rccl", 'system version="2"', 'system version="1"', "+version"),
    ],
)
def test_one_change_has_its_issue(name: str, before: str, after: str, issue: str) -> None:
    """A plus: there are others beside it."""
    issues = set(found(changed(name, (before, after))))
    assert issue.removeprefix("+") in issues
    assert len(issues) == 1 or issue.startswith("+")


@pytest.mark.parametrize(
    ("name", "before", "after", "issue"),
    [
        ("dgx", SWITCH_LINKS, SWITCH_LINKS.replace("18", "17"), "nvlink-fewer"),
        ("switch-l40s", 'speed="100000"', 'speed="-1"', "net-speed-unknown"),
    ],
)
def test_a_change_of_one_device_has_its_issue(
    name: str, before: str, after: str, issue: str
) -> None:
    assert set(found(changed(name, (before, after), count=1))) == {issue}


def test_a_gpu_without_nvlink() -> None:
    checked = changed("dgx", (SWITCH_LINKS, ""), count=1)
    assert set(found(checked)) == {"nvlink-missing"}
    assert found(checked)["nvlink-missing"].message.startswith(
        "0000:1a:00.0: no NVLink, where its peers have 18"
    )


def test_one_sided_nvlinks() -> None:
    back = '<nvlink target="0000:17:00.0" count="4" tclass="0x030200"/>'
    assert set(found(changed("nvlink-pairs", (back, "")))) == {"nvlink-one-way", "nvlink-missing"}
    away = changed("nvlink-pairs", ('target="0000:17:00.0"', 'target="0000:99:00.0"'))
    assert "nvlink-elsewhere" in notes(away)


def test_notes_are_no_finding() -> None:
    assert notes(lint("h200x4-dump")) == {"net-outside-pci", "numa-unknown"}
    assert "unread" in notes(changed("dgx", ("<nic>", '<nic color="red">')))
    assert notes(lint("skeleton-no-class")) >= {"no-gpu", "cpu-kind-missing"}


def test_nodes_that_differ() -> None:
    good = (FOLDER / "dgx.xml").read_text()
    odd = good.replace(SWITCH_LINKS, SWITCH_LINKS.replace("18", "16"), 1)
    odd = odd.replace('speed="400000"', 'speed="200000"', 1)
    files = [(f"node{i}", good.encode()) for i in range(3)]
    assert lint_files(files).issues == ()
    checked = lint_files([*files, ("node3", odd.encode())])
    differ = [issue for issue in checked.issues if issue.id == "nodes-differ"]
    assert {issue.source for issue in differ} == {"node3"}
    assert [issue.message for issue in differ] == [
        "NVLinks by GPU: 7 x 18, 1 x 16; 3 of 4 nodes: 8 x 18",
        "NICs: 7 x 400 Gbit/s, 1 x 200 Gbit/s; 3 of 4 nodes: 8 x 400 Gbit/s",
    ]
    two = lint_files([("a", odd.encode()), ("b", good.encode())])
    messages = [issue.message for issue in two.issues if issue.id == "nodes-differ"]
    assert messages[0] == "NVLinks by GPU: 8 x 18; a: 7 x 18, 1 x 16"


def test_a_graph_of_another_job() -> None:
    assert found(lint("flat-vm-graph")) == {}
    assert set(found(lint("nvlink-pairs", "flat-vm-graph"))) == set()
    more = found(lint("dgx", "flat-vm-graph"))
    assert set(more) == {"graph-gpus"}
    assert "is for 4 GPUs, and dgx has 8" in more["graph-gpus"].message
    fewer = lint("broadcom", "flat-vm-graph")
    assert set(found(fewer)) == {"graph-gpu-unknown"}
    assert "names GPU 3" in found(fewer)["graph-gpu-unknown"].message


def test_broken_graphs() -> None:
    name = "flat-vm-graph"
    assert "graph-channels" in found(changed(name, ('nchannels="2"', 'nchannels="3"')))
    assert "graph-type" in found(changed(name, ('typeintra="SYS"', 'typeintra="FAR"')))
    assert "version" in found(changed(name, ('graphs version="1"', 'graphs version="2"')))
    twice = changed(name, ('dev="1"', 'dev="0"'), count=1)
    assert {"graph-gpu-twice", "graph-uneven"} <= set(found(twice))
    speed = 'speedintra="12" speedinter="12"'
    fallback = changed(name, (speed, speed.replace("12", "0.1")))
    assert "graph-fallback" in found(fallback)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ('<?xml version="1.0"?>\n<system/>', "xml-header", 1),
        ("\ufeff<system/>", "byte-order-mark", 1),
        ("<system>\n\t<cpu/></system>", "tab", 2),
        ('<system>\n<cpu a="1"\tb="2"/></system>', "tag-space", 2),
        ('<system>\n<cpu a="1"\n b="2"/></system>', "tag-space", 2),
        ('<system a = "1"/>', "equals-space", 1),
        ("<system>\n<cpu></cpu ></system>", "closing-space", 2),
        ("<system>\nhello <cpu/></system>", "words", 2),
        (f'<system><cpu a="{"x" * 254}"/></system>', "long-value", 1),
        ("<system><cpu " + " ".join(f"a{i}='1'" for i in range(17)) + "/></system>",
              "attributes", 1),
        ("<system><cpu>" + "<pci/>" * 641 + "</cpu></system>", "children", 1),
        ("<system><cpu>" + "<pci/>" * 254 + "</cpu></system>", "elements", 1),
    ],
)  # fmt: skip
def test_what_nccls_parser_refuses(text: str, kind: str, line: int) -> None:
    places = {refusal.id: refusal.line for refusal in refusals(text)}
    assert places[kind] == line


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.xml")), ids=lambda path: path.stem)
def test_nccls_parser_takes_the_samples(path) -> None:  # type: ignore[no-untyped-def]
    assert refusals(path.read_text()) == []


def test_nccls_parser_takes_what_is_allowed() -> None:
    text = "<!-- \t -- -->\n<system name='a\tb'>\r\n<cpu><unknown>" + "<x/>" * 700
    assert refusals(text + f'</unknown></cpu><cpu a="{"x" * 253}"/></system>') == []


FILE = (
    '<system version="1"><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400" '
    'link_speed="16.0 GT/s PCIe" link_width="16">{}</pci></cpu></system>'
)


def pci(bus_id: str, code: str) -> str:
    link = 'link_speed="16.0 GT/s PCIe" link_width="16"'
    return f'<pci busid="{bus_id}" class="{code}" {link}/>'


def test_a_file_that_fits(tmp_path: Path) -> None:
    one_switch(Machine(tmp_path))
    devices = [("0000:19:00.0", "0x030200"), ("0000:81:00.0", "0x030200"),
               ("0000:1A:00.0", "0x020700")]  # fmt: skip
    text = FILE.format("".join(pci(*device) for device in devices))
    assert list(check_here(read_topology(text.encode(), "vm.xml"), tmp_path)) == []


def test_a_file_for_another_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device("pci0000:00/0000:00:06.0", GPU)
    text = FILE.format(pci("0000:19:00.0", "0x030200"))
    checked = lint_files([("vm.xml", text.encode())], here=tmp_path)
    assert [(issue.id, issue.devices) for issue in checked.issues] == [
        ("bus-id-absent", ("0000:19:00.0",)),
        ("not-in-file", ("0000:00:06.0",)),
    ]
    assert checked.is_bad


def test_nothing_is_compared_unless_asked() -> None:
    assert lint_files([("dgx.xml", (FOLDER / "dgx.xml").read_bytes())]).issues == ()
