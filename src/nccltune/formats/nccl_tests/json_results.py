# SPDX-License-Identifier: Apache-2.0
"""Read the JSON that nccl-tests writes with `-J`: versions 1 to 3 (2.17.3 to 2.19.6).

The file may be truncated. Its format has some peculiarities:

- misspelt keys (2.17.3 to 2.17.8), booleans as strings, "nan", a padded root
- the collective is only in `args[0]`
- `devices` has only the first GPU of each process
- `env` has the whole environment; only NCCL settings without secrets are kept
"""

import re
from collections.abc import Iterator
from math import inf, isnan
from typing import Any, BinaryIO

import msgspec

from nccltune.formats.nccl_tests.columns import REDOPS, FlatRow, TableColumns
from nccltune.formats.nccl_tests.conditions import numbers_of
from nccltune.formats.nccl_tests.run import MAX_RANKS, NcclTestsRun, TableDevice, nccl_version_of
from nccltune.formats.nccl_tests.table import TableReader
from nccltune.formats.reading.collective_names import collective_of_program
from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_names import file_names
from nccltune.formats.reading.file_report import FileKind, FlagKind
from nccltune.formats.reading.runs import RunSamples
from nccltune.formats.text.json_stream import Item, JsonStream
from nccltune.formats.text.lines import visible
from nccltune.formats.text.stamps import stamp_of
from nccltune.model.choice import choice_label
from nccltune.model.sample import Sample

_GROUP = ["time", "algbw", "busbw", "#wrong"]
_LEFT = ["size", "count", "type", "redop", "root"]
_PLACEMENTS = ("out_of_place", "in_place")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_BATCH = 256


def read_json(file: BinaryIO, context: Context) -> Iterator[RunSamples]:
    """Yield the samples of an nccl-tests JSON file in batches (see `context.Reader`)."""
    context.report.kind = FileKind.NCCL_TESTS_JSON
    reader = _JsonReader(context)
    stream = JsonStream(file, frozenset({"results"}), context.progress)
    for item in stream:
        yield from reader.take(item)
    yield from reader.end(stream.complete)


class BadResultError(ValueError):
    """An invalid result; the message is the reason."""


class _JsonReader:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.report = context.report
        self.run = NcclTestsRun()
        self.table: TableReader | None = None
        self.cpu_time = False
        self.at: str | None = None
        self.ended = False
        self.per_iteration = context.options.per_iteration
        self.host_ids = False

    def take(self, item: Item) -> Iterator[RunSamples]:
        """Process a member of the file, or one result."""
        if item.raw is None:
            self.report.cannot_read(item.line, f'"{item.key}"', "larger than 32 MiB")
            return
        try:
            value = msgspec.json.decode(item.raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            text = item.raw[:200].decode(errors="replace")
            self.report.cannot_read(item.line, f'"{item.key}": {text}', f"not JSON: {error}")
            return
        if item.key == "results":
            yield from self.result(value, item)
        elif (method := getattr(self, f"_take_{item.key}", None)) is not None:
            method(value, item.line)

    # --- members -------------------------------------------------------------------------------

    def _take_start_time(self, value: object, line: int) -> None:  # noqa: ARG002
        if isinstance(value, str) and _STAMP.fullmatch(value):
            self.at = value.replace(" ", "T")
            self.run.stamps.add(stamp_of(value))

    def _take_args(self, value: object, line: int) -> None:  # noqa: ARG002
        if not isinstance(value, list):
            return
        words = [word for word in value if isinstance(word, str)]
        if words:
            self.run.collective = collective_of_program(words[0])
        self.run.options = numbers_of(words[1:])
        self.run.unaligned = self.run.options.get("u", 0)

    def _take_env(self, value: object, line: int) -> None:  # noqa: ARG002
        log = self.run.log
        log.whole_environment = True
        for entry in value if isinstance(value, list) else []:
            name, _, text = entry.partition("=") if isinstance(entry, str) else ("", "", "")
            if name == "LD_PRELOAD":
                self.run.preloaded = file_names(text)
            if name.startswith(("NCCL_", "RCCL_")):
                log.set(name, text)
                self.host_ids = self.host_ids or name == "NCCL_HOSTID"

    def _take_nccl_version(self, value: object, line: int) -> None:  # noqa: ARG002
        if isinstance(value, int) and 2000 < value < 10_000_000:
            self.run.nccl_version = nccl_version_of(value)

    def _take_config(self, value: object, line: int) -> None:  # noqa: ARG002
        if not isinstance(value, dict):
            return
        run = self.run
        run.aggregated = max(1, _count(value.get("aggregated_iterations")))
        run.graph = _count(value.get("graph"))
        once = _count(value.get("iterations"))
        run.iterations = once * run.aggregated * max(1, run.graph) or None
        each = max(1, _count(value.get("nthreads"))) * max(1, _count(value.get("ngpus")))
        run.gpus_per_process = each
        if once:
            calls = once + _count(value.get("warmup_iters"))
            run.calls = calls * run.aggregated * max(1, run.graph)
        run.parameters = f"{each} {once}"
        if value.get("blocking_collectives") == "true":
            run.blocking = run.options.get("z", 1)
        # `_add_device` adds all ranks of a process to the list, so each entry is one rank.
        run.ranks_per_process = 1
        devices = value.get("devices")
        for entry in devices if isinstance(devices, list) else []:
            self._add_device(entry, each)

    def _add_device(self, entry: object, each: int) -> None:
        if not isinstance(entry, dict) or len(self.run.devices) >= MAX_RANKS:
            return
        host, gpu, bus = (entry.get(key) for key in ("hostname", "device_info", "device_hex"))
        host = host.partition(".")[0] if isinstance(host, str) else ""
        first = _count(entry.get("rank"))
        # Only the first GPU of each process is in the list. The other GPUs have the next ranks.
        self.run.devices += [
            TableDevice(
                first + more,
                _count(entry.get("group")),
                _count(entry.get("pid")),
                host,
                gpu if isinstance(gpu, str) else "",
                bus if isinstance(bus, str) and not more else "",
                _count(entry.get("device")) + more,
            )
            for more in range(min(each, 4096))
        ]

    def _take_out_of_bounds(self, value: object, line: int) -> None:
        if isinstance(value, dict) and (_count(value.get("count")) or value.get("okay") == "false"):
            self.report.flag(
                FlagKind.OUT_OF_BOUNDS,
                f"nccl-tests found wrong results: {_count(value.get('count'))} failed checks (out"
                " of bounds), summed over all processes",
                line,
            )

    def _take_average_bus_bandwidth(self, value: object, line: int) -> None:
        if not isinstance(value, dict):
            return
        printed = _number(value.get("bandwidth", value.get("bandwidith")))
        if value.get("okay") == "false":
            self.report.flag(
                FlagKind.LOW_BANDWIDTH,
                f"the average bus bandwidth of {printed} GB/s is below NCCL_TESTS_MIN_BW",
                line,
            )
        if self.table is not None and printed is not None:
            self.table.average = (printed, line)

    # nccl-tests 2.17.3 to 2.17.8 misspell the key.
    _take_average_bus_bandwidith = _take_average_bus_bandwidth

    def _take_errors(self, value: object, line: int) -> None:
        for text in value if isinstance(value, list) else []:
            if isinstance(text, str) and text.strip():
                sentence = f"NCCL's last error was: {visible(text.strip(), 80)}"
                self.report.flag(FlagKind.FAILURE, sentence, line, doubtful=False)

    def _take_end_time(self, value: object, line: int) -> None:  # noqa: ARG002
        self.ended = isinstance(value, str)

    # --- results -------------------------------------------------------------------------------

    def result(self, value: object, item: Item) -> Iterator[RunSamples]:
        """Process one element of `results`."""
        try:
            flat, cpu_time = self._flat(value, item.line)
        except BadResultError as error:
            text = (item.raw or b"")[:200].decode(errors="replace")
            self.report.cannot_read(item.line, text, str(error))
            if self.table is not None:
                self.table.sound = False
            return
        table = self._table(cpu_time, item.line)
        if flat[1] == 0:
            table.count_empty(sum(flat[at] is not None for at in (7, 10)))
            return
        for place in _PLACEMENTS:
            body = value.get(place) if isinstance(value, dict) else None
            if body and (time_us := _number(body.get("time"))):
                table.check_algbw(item.line, flat[1], time_us, _number(body.get("alg_bw")) or 0.0)
        table.rows.append(flat)
        if self.per_iteration and isinstance(value, dict):
            for batch in table.emit():
                yield self._by_iteration(batch, value)
        elif len(table.rows) >= _BATCH:
            yield from table.emit()

    def end(self, complete: bool) -> Iterator[RunSamples]:
        """End the file; `complete` is False if it is truncated."""
        if self.table is not None:
            self.table.footer = True
            yield from self.table.finish()
        if not complete or not self.ended:
            how = "is cut off" if not complete else "was closed without an end time"
            self.report.flag(
                FlagKind.ABORTED, f"the file {how}: the run was aborted; whole results are kept"
            )
        self.report.settings.update(self.run.log.settings)
        self.report.nccl_version = self.report.nccl_version or self.run.nccl_version

    def _table(self, cpu_time: bool, line: int) -> TableReader:
        if self.table is None:
            labels = _LEFT + [
                "cputime" if cpu_time and label == "time" else label for label in _GROUP * 2
            ]
            layout = TableColumns(labels, ["out-of-place", "in-place"])
            self.run.hosts_told = not self.host_ids
            self.table = TableReader(self.run, layout, self.context, line)
            self.report.tables += 1
        return self.table

    def _flat(self, value: object, line: int) -> tuple[FlatRow, bool]:
        if not isinstance(value, dict):
            raise BadResultError("a result is not an object")
        size, elements = value.get("size"), value.get("count")
        if not isinstance(size, int) or not isinstance(elements, int) or size < 0 or elements < 0:
            raise BadResultError("a result without a size or count")
        dtype, redop = value.get("type"), value.get("redop")
        if not isinstance(dtype, str) or not re.fullmatch(r"[a-z][a-z0-9_]{1,15}", dtype):
            raise BadResultError(f"{dtype!r} is not a type")
        redop = redop.strip() if isinstance(redop, str) and redop.strip() else "none"
        if redop not in REDOPS:
            raise BadResultError(f"{redop!r} is not a reduction")
        root = str(value.get("root", "-1")).strip()
        if not re.fullmatch(r"-?\d{1,9}", root):
            raise BadResultError(f"root {root!r} is not a whole number")
        cpu_time = False
        timings: list[object] = []
        for place in _PLACEMENTS:
            body = value.get(place)
            if body is None:
                timings += [None, 0.0, None]
                continue
            if not isinstance(body, dict):
                raise BadResultError(f"{place} is not an object")
            cpu_time = cpu_time or "cpu_time" in body
            timings += _timing(body, size)
        if timings[0] is None and timings[3] is None:
            raise BadResultError("a result without times")
        plain = int(root) if int(root) >= 0 else None
        return (line, size, elements, dtype, REDOPS[redop], plain, self.at, *timings), cpu_time

    def _by_iteration(self, means: RunSamples, value: dict[str, Any]) -> RunSamples:
        """Replace the mean of the iterations by a sample of each iteration.

        If the file has no valid times of single iterations, keep the mean and flag this.
        """
        samples: list[Sample] = []
        for mean in means.samples:
            body = value.get(f"{_PLACEMENTS[mean.in_place]}_per_iter")
            listed = body.get("times_us") if isinstance(body, dict) else None
            skip = _count(body.get("skipped_iterations")) if isinstance(body, dict) else 0
            times = [_number(time) for time in listed] if isinstance(listed, list) else []
            good = [time for time in times[skip:] if time is not None and 0 < time < inf]
            if not good or len(good) != len(times[skip:]):
                self.report.flag(
                    FlagKind.NOTE, "no times of single iterations (-I 1): their mean is taken"
                )
                samples.append(mean)
                continue
            samples += [
                msgspec.structs.replace(mean, repeat=repeat, iterations=1, time_us=time)
                for repeat, time in enumerate(good)
            ]
            self.report.saw_many(
                mean.collective, mean.choice, mean.nodes, mean.ranks, len(good) - 1, mean.bytes
            )
            means.run.saw(choice_label(mean.choice), len(good) - 1)
        return RunSamples(means.run, samples)


def _timing(body: dict[str, Any], size: int) -> list[object]:
    """Return time, busbw and the number of wrong elements of a placement.

    The time is 0 if it cannot be computed. Raises BadResultError if a value is invalid.
    """
    time_us = _number(body.get("cpu_time", body.get("time")))
    algbw, busbw = _number(body.get("alg_bw")), _number(body.get("bus_bw"))
    if time_us is None or not 0 < time_us < inf:
        raise BadResultError(f"a time of {body.get('cpu_time', body.get('time'))!r} us cannot be")
    if busbw is None or algbw is None or busbw < 0 or algbw < 0:
        raise BadResultError("a bandwidth is missing or negative")
    wrong = _number(body.get("nwrong"))
    if wrong is not None and not 0 <= wrong < inf:
        raise BadResultError(f"{wrong:g} wrong elements cannot be")
    if "cpu_time" in body:
        # With -C the time is CPU time. The bandwidth (here with 6 decimals) gives the time of the
        # call.
        time_us = size / (algbw * 1e3) if algbw >= 1e-3 else 0.0
    return [time_us, busbw, None if wrong is None else int(wrong)]


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _number(value: object) -> float | None:
    """Return a number, also from a string; None for "nan" and for other values."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isnan(value) else float(value)
