# SPDX-License-Identifier: Apache-2.0
"""Makes output of nccl-tests from the facts of its formats (columns, widths, order of lines).

Numbers agree with each other as nccl-tests' do, so that every check of the reader is met unless a
test breaks one on purpose.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nccltune.model.collective import Collective

PROGRAM = {
    Collective.ALLREDUCE: "all_reduce_perf",
    Collective.ALLGATHER: "all_gather_perf",
    Collective.REDUCESCATTER: "reduce_scatter_perf",
    Collective.BROADCAST: "broadcast_perf",
    Collective.REDUCE: "reduce_perf",
    Collective.ALLTOALL: "alltoall_perf",
    Collective.ALLTOALLV: "alltoallv_perf",
    Collective.SENDRECV: "sendrecv_perf",
    Collective.SCATTER: "scatter_perf",
    Collective.GATHER: "gather_perf",
    Collective.HYPERCUBE: "hypercube_perf",
}
PER_RANK = {
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLTOALL,
    Collective.SCATTER,
    Collective.GATHER,
    Collective.HYPERCUBE,
}
REDUCING = {Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE}
ROOTED = {Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER}
# Columns before the times in nccl-tests 2.0 to 2.11; all-to-all prints its redop blank.
OLD_COLUMNS = {
    Collective.ALLREDUCE: ("type", "redop"),
    Collective.REDUCESCATTER: ("type", "redop"),
    Collective.ALLTOALL: ("type", "redop"),
    Collective.ALLGATHER: ("type",),
    Collective.SENDRECV: ("type",),
    Collective.BROADCAST: ("type", "root"),
    Collective.SCATTER: ("type", "root"),
    Collective.GATHER: ("type", "root"),
    Collective.REDUCE: ("type", "redop", "root"),
}
WIDTH = {"size": 10, "count": 12, "type": 8, "redop": 6, "root": 6}


def bandwidths(
    collective: Collective, size: int, time_us: float, ranks: int
) -> tuple[float, float]:
    algbw = size / (time_us * 1e3)
    return algbw, algbw * collective.bus_factor(ranks)


def fitted(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it since 2.17.3: fewer digits in a small width."""
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}"


def old_time(time_us: float) -> str:
    digits = 0 if time_us > 10000 else 1 if time_us > 100 else 2
    return f"{time_us:7.{digits}f}"


@dataclass(frozen=True)
class Point:
    """A row: bytes over all ranks, times out of place and in place, wrong elements (None: N/A)."""

    size: int
    out_us: float
    in_us: float
    wrong: int | None = 0
    at: str = "2026-11-21 03:06:00"


@dataclass(frozen=True)
class Made:
    """A run to print. `era` is "old" (2.0 to 2.11), "2.13" or "2.17" (2.17.4 and later)."""

    points: tuple[Point, ...]
    collective: Collective = Collective.ALLREDUCE
    era: str = "2.17"
    ranks: int = 4
    hosts: tuple[str, ...] = ("alpha",)
    pid: int = 2136
    one_process: bool = True
    dtype: str = "float"
    itemsize: int = 4
    root: int = 0
    headers: int = 22809
    loaded: int = 22809
    stamps: bool = False
    per_iteration: bool = False
    cpu_time: bool = False
    extra: tuple[str, ...] = ()
    iterations: int = 20
    graph: int = 0
    aggregated: int = 1
    threads: int = 1
    gpu: str = "NVIDIA H200"
    buses: tuple[str, ...] = ()
    type_width: int = 8
    footer: bool = True
    average: float | None = None
    gpus_named: tuple[int, ...] | None = field(default=None)
    groups: tuple[int, ...] | None = None

    def with_(self, **changes: object) -> "Made":
        return replace(self, **changes)  # type: ignore[arg-type]

    # --- lines -----------------------------------------------------------------------------------

    @property
    def named(self) -> str:
        return PROGRAM[self.collective]

    def head(self) -> Iterator[str]:
        if self.era == "2.17":
            codes = f"nccl-headers={self.headers} nccl-library={self.loaded}"
            yield f"# nccl-tests version 2.19.6 {codes}"
            yield f"# Collective test starting: {self.named}"
        sizes = [point.size for point in self.points] or [8]
        each = self.ranks if self.one_process else 1
        more = ""
        if self.era != "old":
            more = f" agg iters: {self.aggregated}"
        yield (
            f"# nThread {self.threads} nGpus {each} minBytes {min(sizes)} maxBytes {max(sizes)}"
            f" step: 2(factor) warmup iters: 1 iters: {self.iterations}{more} validation: 1"
            + (f" graph: {self.graph}" if self.era != "old" else " ")
        )
        yield "#"
        yield "# Using devices"
        yield from self.devices()
        yield "#"

    def devices(self) -> Iterator[str]:
        for rank in range(self.ranks):
            host = self.hosts[rank * len(self.hosts) // self.ranks]
            pid = self.pid if self.one_process else self.pid + rank
            local = rank % -(-self.ranks // len(self.hosts))
            place = f"on {host:>10} device {local:2d}"
            bus = self.buses[local % len(self.buses)] if self.buses else f"{rank + 1:02x}"
            if self.era == "old":
                yield f"#   Rank {rank:2d} Pid {pid:6d} {place} [0x{rank + 1:02x}] {self.gpu}"
            else:
                group = self.groups[rank] if self.groups else 0
                yield (
                    f"#  Rank {rank:2d} Group {group:2d} Pid {pid:6d} {place}"
                    f" [0000:{bus}:00] {self.gpu}"
                )

    @property
    def left(self) -> tuple[str, ...]:
        if self.era == "old":
            return ("size", "count", *OLD_COLUMNS[self.collective])
        return ("size", "count", "type", "redop", "root")

    @property
    def group(self) -> list[tuple[str, str, int]]:
        """Return label, unit and width of the columns of one placement."""
        wrong = ("error", "", 5) if self.era == "old" else ("#wrong", "", 6)
        columns = [
            ("cputime" if self.cpu_time else "time", "(us)", 7),
            ("algbw", "(GB/s)", 6),
            ("busbw", "(GB/s)", 6),
            wrong,
        ]
        columns += [(label, "", 8) for label in self.extra]
        if self.per_iteration:
            columns += [(f"i_{name}", "(us)", 7) for name in ("min", "max", "p99")]
            columns += [("i_cv%", "(%)", 7)]
        return columns

    def columns(self) -> list[str]:
        """Return the three header lines."""

        def width(name: str) -> int:
            return self.type_width if name == "type" else WIDTH[name]

        blank = "# " + "  ".join(" " * width(name) for name in self.left)
        names = "# " + "  ".join(f"{name:>{width(name)}}" for name in self.left)
        units = {"size": "(B)", "count": "(elements)"}
        unit = "# " + "  ".join(f"{units.get(name, ''):>{width(name)}}" for name in self.left)
        for _ in range(2):
            names += "".join(f"  {label:>{size}}" for label, _, size in self.group)
            unit += "".join(f"  {text:>{size}}" for _, text, size in self.group)
        if self.stamps:
            names += f" {'timestamp':>19}"
            unit += " %Y-%m-%d %H:%M:%S"
        groups = f"{blank}           out-of-place                       in-place          "
        return [groups, names, unit]

    def cells(self, point: Point) -> tuple[str, list[str]]:
        """Return the part of a row before the times, and one part per placement."""
        count = point.size // self.itemsize
        if self.collective in PER_RANK:
            count //= self.ranks
        reducing, rooted = self.collective in REDUCING, self.collective in ROOTED
        # sendrecv_perf has no reduction and prints one (2.13 and later).
        reducing = reducing or self.collective is Collective.SENDRECV
        values = {
            "size": f"{point.size:12d}",
            "count": f"{count:12d}",
            "type": f"{self.dtype:>{self.type_width}}",
            "redop": f"{'sum' if reducing else '' if self.era != '2.17' else 'none':>6}",
            "root": f"{self.root if rooted else -1:6d}",
        }
        if self.collective is Collective.HYPERCUBE:
            values["redop"] = " " * 6
        left = "  ".join(values[name] for name in self.left)
        # nccl-tests does not check these in place.
        unchecked = self.collective in (
            Collective.ALLTOALL,
            Collective.ALLTOALLV,
            Collective.SENDRECV,
        )
        in_place = replace(point, wrong=None) if unchecked else point
        return left, [self.timing(point, point.out_us), self.timing(in_place, point.in_us)]

    def timing(self, point: Point, time_us: float) -> str:
        algbw, busbw = bandwidths(self.collective, point.size, time_us, self.ranks)
        if self.era == "2.17":
            shown = fitted(time_us / 3 if self.cpu_time else time_us, 7)
            numbers = f"  {shown}  {fitted(algbw, 6)}  {fitted(busbw, 6)}"
        else:
            numbers = f"  {old_time(time_us)}  {algbw:6.2f}  {busbw:6.2f}"
        if point.wrong is None:
            wrong = "N/A"
        else:
            wrong = f"{point.wrong:.0e}" if self.era == "old" else f"{point.wrong:g}"
        text = f"{numbers}  {wrong:>{5 if self.era == 'old' else 6}}"
        text += "".join(f"  {0:8g}" for _ in self.extra)
        if self.per_iteration:
            text += f"  {fitted(time_us * 0.9, 7)}  {fitted(time_us * 1.2, 7)}"
            text += f"  {fitted(time_us * 1.19, 7)}  {fitted(3.25, 7)}"
        return text

    def row(self, point: Point) -> str:
        left, parts = self.cells(point)
        return left + "".join(parts) + (f"  {point.at}" if self.stamps else "")

    def mean_busbw(self) -> float:
        values = [
            bandwidths(self.collective, point.size, time, self.ranks)[1]
            for point in self.points
            for time in (point.out_us, point.in_us)
        ]
        return sum(values) / len(values) if values else 0.0

    def foot(self) -> Iterator[str]:
        wrong = sum(bool(point.wrong) for point in self.points)
        yield f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}"
        mean = self.mean_busbw() if self.average is None else self.average
        yield f"# Avg bus bandwidth    : {mean:g} "
        yield "#"
        if self.era == "2.17":
            yield f"# Collective test concluded: {self.named}"
            yield "#"

    def lines(self) -> list[str]:
        lines = [*self.head(), *self.columns(), *map(self.row, self.points)]
        return lines + (list(self.foot()) if self.footer else [])

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"


def without_devices(output: str) -> str:
    """Return an output without the lines of its device list."""
    return re.sub(r"^# +Rank .*\n", "", output, flags=re.MULTILINE)


def points(*sizes: int, start: float = 20.0) -> tuple[Point, ...]:
    """Return rows with plausible times."""
    return tuple(
        Point(size, round(start + size / 1e5, 2), round(start * 1.1 + size / 1.1e5, 2))
        for size in sizes
    )
