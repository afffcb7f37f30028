# SPDX-License-Identifier: Apache-2.0
"""What a shared object or program needs and shows."""

import re
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

_NODELETE = 8  # DF_1_NODELETE


@dataclass(frozen=True)
class Elf:
    """The dynamic section of one file."""

    machine: str
    needed: frozenset[str]
    """Libraries that the loader loads with it."""
    glibc: tuple[int, ...]
    """The newest version of glibc that it needs a symbol of."""
    versions: frozenset[str]
    """Prefixes of all symbol versions that it needs: GLIBC, GLIBCXX, GCC."""
    exports: frozenset[str]
    unversioned: frozenset[str]
    """Undefined symbols that any library of the process can provide."""
    has_search_path: bool
    soname: str | None
    stays: bool
    """It is never unloaded (-z nodelete)."""


def read(path: Path) -> Elf:
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        indexes = elf.get_section_by_name(".gnu.version")
        needs = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(needs, GNUVerNeedSection)
        versions = {aux.name for _, group in needs.iter_versions() for aux in group}
        exports, unversioned = set(), set()
        for number, symbol in enumerate(symbols):
            if not symbol.name:
                continue
            if symbol["st_shndx"] != "SHN_UNDEF":
                exports.add(symbol.name)
            elif indexes.get_symbol(number)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL"):
                unversioned.add(symbol.name)
        tags = list(dynamic.iter_tags())
        return Elf(
            machine=elf.get_machine_arch(),
            needed=frozenset(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            glibc=max(_numbers(name) for name in versions if name.startswith("GLIBC_2")),
            versions=frozenset(name.split("_")[0] for name in versions),
            exports=frozenset(exports),
            unversioned=frozenset(unversioned),
            soname=next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), None),
            stays=any(
                tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & _NODELETE for tag in tags
            ),
            has_search_path=any(tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH") for tag in tags),
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
