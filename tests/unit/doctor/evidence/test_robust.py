# SPDX-License-Identifier: Apache-2.0
"""Any content of a file gives records, in bounded time."""

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.doctor.evidence.parsers.copies import parse_copies
from nccltune.doctor.evidence.parsers.elf import exported_names
from nccltune.doctor.evidence.parsers.ethtool import parse_ethtool
from nccltune.doctor.evidence.parsers.gids import parse_devinfo_gids, parse_show_gids
from nccltune.doctor.evidence.parsers.gpu_query import parse_gpu_query
from nccltune.doctor.evidence.parsers.imex import parse_imex
from nccltune.doctor.evidence.parsers.interfaces import parse_interfaces
from nccltune.doctor.evidence.parsers.job_settings import parse_job_settings
from nccltune.doctor.evidence.parsers.kernel import (
    Space,
    parse_cpus,
    parse_df,
    parse_huge_pages,
    parse_modules,
    parse_status,
)
from nccltune.doctor.evidence.parsers.kernel_log import parse_kernel_log
from nccltune.doctor.evidence.parsers.limits import parse_inspect, parse_limits
from nccltune.doctor.evidence.parsers.listed import parse_listed
from nccltune.doctor.evidence.parsers.lspci import parse_lspci
from nccltune.doctor.evidence.parsers.nccl_lines import parse_nccl_lines
from nccltune.doctor.evidence.parsers.nvlink import parse_nvlink_status
from nccltune.doctor.evidence.parsers.p2p_matrix import parse_p2p_matrix
from nccltune.doctor.evidence.parsers.pci_config import parse_pci_config
from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.parsers.rdma_counters import parse_rdma_counters
from nccltune.doctor.evidence.parsers.rdma_ports import parse_rdma_ports
from nccltune.doctor.evidence.parsers.services import parse_services
from nccltune.doctor.evidence.parsers.symbols import parse_plugins
from nccltune.doctor.evidence.parsers.text import SettingLine, decode
from nccltune.doctor.evidence.parsers.topo_matrix import parse_topo_matrix
from nccltune.doctor.evidence.parsers.tree import parse_tree
from nccltune.doctor.evidence.redacting import plain_cmdline, plain_conf, plain_log, plain_text
from nccltune.model.errors import InputError
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.elves import elf


def shm(text: str) -> Space | None:
    return parse_df(text, "/dev/shm")


def job_settings(text: str) -> list[SettingLine]:
    return parse_job_settings(text, lambda _: True)


PARSERS: tuple[Callable[[str], Any], ...] = (
    parse_interfaces,
    parse_cpus,
    parse_ethtool,
    parse_gpu_query,
    parse_huge_pages,
    parse_imex,
    parse_kernel_log,
    parse_inspect,
    parse_limits,
    parse_listed,
    parse_lspci,
    parse_modules,
    parse_nccl_lines,
    parse_copies,
    parse_nvlink_status,
    parse_p2p_matrix,
    parse_perftest,
    parse_plugins,
    parse_rail_pings,
    parse_rdma_counters,
    parse_rdma_ports,
    parse_services,
    parse_devinfo_gids,
    parse_show_gids,
    parse_status,
    parse_topo_matrix,
    parse_tree,
    shm,
    job_settings,
)
REDACTING = (plain_cmdline, plain_conf, plain_log, plain_text)
# A text in an output, and the part of it that identifies the hardware.
IDENTITIES = (
    (
        "GPU-8a1fd6c2-0b7e-4c6a-9d21-5e0f3b7c9a44",
        "8a1fd6c2-0b7e-4c6a-9d21-5e0f3b7c9a44",
    ),
    ("9c:63:c0:12:ab:7e", "9c:63:c0:12:ab:7e"),
    ("Serial Number : 1654922003311", "1654922003311"),
    ("<serial>1654922003311</serial>", "1654922003311"),
)
SECRETS = ("api_key=hunter22", "NCCL_AUTH_TOKEN=hunter22")
KNOWN = {name: decode(value.encode()) for name, value in vars(texts).items() if name.isupper()}


def check(parser: Callable[[str], Any], text: str) -> None:
    """Check a parser's result: it survives MessagePack as its annotated type, its line numbers
    exist, and its integers fit 64 bits."""
    found = parser(text)
    annotated = get_type_hints(parser)["return"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=annotated) == found
    lines = text.count("\n") + 1
    # In XML, elements are counted instead of lines.
    assert 0 <= getattr(found, "unread", 0) <= max(lines, text.count("<"))
    for value in values(found):
        assert 0 <= getattr(value, "line", 0) <= lines
        assert not isinstance(value, int) or abs(value) < 1 << 64


def values(found: Any) -> Iterator[Any]:
    """Yield a record and everything in it."""
    yield found
    if isinstance(found, dict):
        found = (*found, *found.values())
    if isinstance(found, list | tuple):
        for one in found:
            yield from values(one)


@settings(max_examples=150)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    text = decode(data)
    for parser in PARSERS:
        check(parser, text)
    for redacted in REDACTING:
        assert redacted(text).count("\n") <= text.count("\n") + 1
    assert parse_pci_config(data).complete is (len(data) > 64)


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=8)
@given(data=st.data())
def test_damaged_outputs(name: str, data: st.DataObject) -> None:
    """Cut, doubled and mixed lines of real tool output."""
    lines = KNOWN[name].split("\n")
    other = KNOWN[data.draw(st.sampled_from([*KNOWN]))].split("\n")
    at = data.draw(st.integers(0, len(lines)))
    cut = data.draw(st.integers(0, 40))
    word = data.draw(st.sampled_from(["", "9" * 40, "-1", "N/A", "\t", "é", "0x", "²"]))
    mixed = [*lines[:at], *other, *(line[:cut] + word + line[cut:] for line in lines[at:])]
    text = "\n".join(mixed)
    for parser in PARSERS:
        check(parser, text)


@settings(max_examples=150)
@given(st.data())
def test_identifiers_and_secrets_are_redacted_anywhere(data: st.DataObject) -> None:
    """Identifiers and secrets are removed on any line, whatever surrounds them."""
    lines = data.draw(st.sampled_from([*KNOWN.values()])).split("\n")
    at = data.draw(st.integers(0, len(lines)))
    before = data.draw(st.sampled_from(["", "NVRM: Xid of ", "\t", "[ 1.0] mlx5_core: "]))
    for words, identity in IDENTITIES:
        lead = "" if words.startswith("Serial") else before
        text = "\n".join([*lines[:at], f"{lead}{words} after", *lines[at:]])
        for plain in (plain_text(text), plain_log(text)):
            assert identity not in plain
    for secret in SECRETS:
        text = "\n".join([*lines[:at], secret, *lines[at:]])
        assert "hunter22" not in plain_conf(text)
        assert plain_conf(text).count("\n") == text.count("\n")
        assert "hunter22" not in plain_cmdline(text)


@pytest.mark.parametrize(
    "line",
    [
        "1 " * 200_000,
        # A pattern that backtracks over blanks would take minutes for these.
        "GPU 00000000:04:00.0\n" + ("    Max" + " " * 4000 + "x:\n") * 500,
        ("Max locked" + " " * 4000 + "x\n") * 500,
        ("\tstate: A" + " " * 4000 + "x\n") * 500,
        "a" * 400_000,
        "NCCL INFO " + "0 via [" * 60_000,
        "/sys/" + "0000:00:00.0/" * 30_000,
        "Node #0 " + "- " * 100_000,
        "NCCL_A=" + '"' * 200_000,
        "link a/1 " + "x 1 " * 100_000,
        " " * 400_000 + ":",
        "NCCL_A set by " * 20_000,
        "<gpu id=" * 50_000,
        "{" * 100_000,
        "00:00.0 [" * 40_000,
    ],
)
@pytest.mark.timeout(120)
def test_long_lines_end(line: str) -> None:
    """A pattern with quadratic time in the length of a line would take minutes here."""
    for parser in PARSERS:
        check(parser, line)
    for redacted in REDACTING:
        assert len(redacted(line)) <= 2 * len(line) + 1


@settings(max_examples=200)
@given(st.binary(max_size=400), st.booleans())
def test_any_elf(data: bytes, has_head: bool) -> None:
    start = elf(["ncclNetPlugin_v9"])[:64] if has_head else b""
    with suppress(InputError):
        assert isinstance(exported_names(io.BytesIO(start + data)), list)


@settings(max_examples=200)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_damaged_elf(at: int, change: bytes) -> None:
    good = elf(["ncclNetPlugin_v9", "ncclTunerPlugin_v5"])
    bad = good[:at] + change + good[at + len(change) :]
    try:
        names = exported_names(io.BytesIO(bad), "nccl")
    except InputError:
        return
    assert all(name.startswith("nccl") for name in names)


def test_exported_names_of_elf_files() -> None:
    names = ["ncclNetPlugin_v9", "ncclTunerPlugin_v5", "other"]
    for is_64 in (True, False):
        for order in ("<", ">"):
            data = elf(names, is_64=is_64, order=order, undefined=["ncclDebugLog"])
            assert exported_names(io.BytesIO(data)) == names
            assert exported_names(io.BytesIO(data), "nccl") == names[:2]
    with pytest.raises(InputError, match="is no ELF file"):
        exported_names(io.BytesIO(b"#!/bin/sh\n"))
    with pytest.raises(InputError, match="ends too early"):
        exported_names(io.BytesIO(elf(names)[:100]))
    huge = bytearray(elf(names))
    # The header of a section claims 2^60 bytes.
    struct.pack_into("<Q", huge, len(huge) - 64 + 32, 1 << 60)
    with pytest.raises(InputError, match="more than 64 MiB"):
        exported_names(io.BytesIO(bytes(huge)))
