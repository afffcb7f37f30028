# SPDX-License-Identifier: Apache-2.0
"""Chakra traces in protobuf."""

import base64
import io
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.workload.call import CommGroup, Unread
from nccltune.workload.chakra import read_chakra
from nccltune.workload.pytorch_names import call_of
from tests.unit.workload.recordings import read, reasons

PACKED = (
    "c-p0uQESsc9Kd^Rvn0nRBMhyA8hkKAvY2%3SgR-t8>=`}(zk_jTrbx(E=fa@7A8LUHT)KS93MsWWv_k#ujy=?c2P"
    "P52f6$&|NH&!e|L`|r)#=alkUT{nDnWSFM(uehNkb3K0c4ImWGD{kT!{-JIyBcyofqOLQ#c(1WHeeptyf(HsDj+w"
    "hdLTs<N)ib)%ZTDrD&3rml24?EU%M?t4m-7m6zH7#*o-ckZ!f-GZVUBN7hLAp8n|B|<LhA=hc~zkpDbwgW=ELppj"
    "*qkwwo!1Juh^zEUKx;<kLS+Cw4qmz>v&I9u!j2I3BX{0#S`d$`CmB*|(K^CpE0m?1|ReT!vQ4)@SVPlo4J&W0$Nn"
    "_txvRa-|!P<Z#8TdX*E<)NWjKgU+c0bV8CxM0e@C*gmr<VZi{sclvdblKgjFUc%mR+|^3hjB<>y|!O2Qi<sN#-t&"
    "Z!T5*hm^Gmxwwxbdbf~1-(LOzLRnI?nv=q|2~H9Qlv`i(9O6uM_1gXl%2&HLzMAI0y!i!hdBOV&5IE^}*0N0l$D("
    "9Z;r`Tc-8_Zw=8cSMj!=Cn6i$U=mTyU*nlF$gE@p}Awy-9N@kPM)MB<X^ny*%V+1i5ZZZH~nBkCZ>^}mA>1mH;ES"
    "I@l&EPn=qAZ?A;bn$e|P6cNk!Dn;#QB7}LdjsU%RyW)AtwTYS_%4njHv{wcEaJ4AW+@*CP!e%M19sOsPNh6^x&t>"
    "-XpJ$uK`)o`H)=VI<N"
)
TRACE = zlib.decompress(base64.b85decode(PACKED))
"""Made by Google's protobuf library with the public `et_def.proto`: metadata, a call on the host
and its kernel, kernels of an all-gather and a reduce-scatter with the arguments that PyTorch 2.4
records (4 ranks), a send, two nodes of a generator without arguments, a kernel with both sides of
its all-gather, a barrier, and an addition."""


def test_kernels_are_calls_and_what_is_ambiguous_is_said(tmp_path: Path) -> None:
    found = read(tmp_path / "rank0.et", TRACE)
    assert found.formats == {"Chakra trace": 1}
    tensor, pipeline, other = CommGroup("mesh_tp", 4), CommGroup("mesh_pp", 2), CommGroup("", 0)
    assert {
        (row.group, row.operation.value, row.bytes, row.time_us, row.timed) for row in found.rows
    } == {
        (tensor, "allreduce", 1024, 30.0, 1),
        (tensor, "allgather", 4096, 40.0, 1),
        (tensor, "reducescatter", 4096, 0.0, 0),
        (pipeline, "send", 256, 12.0, 1),
        (other, "allreduce", 4096, 0.0, 0),
        (other, "allgather", 8192, 5.0, 1),
    }
    assert sum(row.calls for row in found.rows) == 6
    assert reasons(found) == "all-gather whose size may be that of one rank or of all (1)"


@pytest.mark.parametrize("tail", [b"", b"\xff", b"\xff" * 12, b"\x80\x80\x80\x80\x01"])
def test_a_file_that_is_cut_off_or_damaged_keeps_its_calls(tmp_path: Path, tail: bytes) -> None:
    found = read(tmp_path / "rank0.et", TRACE[:-9] + tail)
    assert sum(row.calls for row in found.rows) == 6
    assert "cut off or damaged" in reasons(found)


def test_damage_raises_no_other_error(tmp_path: Path) -> None:
    random_ = random.Random(45)
    read_any = [0, 0]
    for _ in range(300):
        damaged = bytearray(TRACE)
        for _ in range(random_.randrange(1, 4)):
            damaged[random_.randrange(len(damaged))] = random_.choice((0, 1, 0x5B, 0x80, 0xFF))
        try:
            read_any[bool(read(tmp_path / "f", bytes(damaged)).rows)] += 1
        except InputError:
            read_any[0] += 1
    assert min(read_any) > 0


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (b"\x80\x80\x40" + b"\x08\x00" * (1 << 19), []),
        (b"\x80\x80\x80\x01" + b"\x08\x00" * (1 << 20), ["a message of more than 1 MiB"]),
    ],
    ids=["most", "more"],
)
def test_a_large_node_takes_no_more_than_its_bytes(node: bytes, said: list[str]) -> None:
    file = io.BytesIO(node)
    tracemalloc.start()
    try:
        found = list(read_chakra(file, "x.et"))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(node)
    finally:
        tracemalloc.stop()
    assert [item.reason for item in found if isinstance(item, Unread)] == said


@pytest.mark.parametrize(("ranks", "is_read"), [((1 << 31) - 1, True), (1 << 31, False)])
def test_a_group_has_as_many_ranks_as_nccl_counts(ranks: int, is_read: bool) -> None:
    found = call_of("x", "c", CommGroup("", ranks), "allreduce", 8, 8, "byte")
    assert isinstance(found, Unread) is not is_read
