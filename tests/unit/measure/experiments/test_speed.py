# SPDX-License-Identifier: Apache-2.0
"""How fast a job is, from what training scripts print."""

import pytest

from nccltune.measure.experiments.ab.speed import JobSpeed, read_speed, user_metric
from nccltune.model.errors import InputError

MEGATRON = (
    " [2026-11-28 10:00:0{at}] iteration        {at}/     100 | consumed samples:           64 | "
    "elapsed time per iteration (ms): {value} | throughput per GPU (TFLOP/s/GPU): 312.1 | "
    "learning rate: 1.5E-06 | global batch size:    16 | lm loss: 1.0E+01 |"
)
TITAN = "[titan] 2026-11-28 - root - INFO - step: {at}  loss: 8.0  memory: 9GiB  tps: {value}  mfu"
TQDM = "\r {at}0%|##  | {at}/9 [00:0{at}<00:09,  {value}, loss=2.1]"


def _output(form: str, *values: str) -> bytes:
    return "\n".join(form.format(at=at, value=value) for at, value in enumerate(values)).encode()


@pytest.mark.parametrize(
    ("form", "values", "metric", "value"),
    [
        (MEGATRON, ["9000.0", "250.5", "250.1", "250.3"], "iteration time (ms)", 250.3),
        ("iteration time (ms) = {value}", ["900", "20", "20"], "iteration time (ms)", 20.0),
        (TITAN, ["120", "7,254", "7,250", "7,258"], "tokens/s (tps)", 7254.0),
        ("step {at} | tokens/s: {value}", ["1", "5.5e3", "5.5e3"], "tokens/s", 5500.0),
        ("{value} tokens/sec, lr 1e-4", ["1", "810", "812", "811"], "tokens/s", 811.0),
        ("tokens_per_sec={value}", ["1", "810", "810"], "tokens/s", 810.0),
        ("CurrSamplesPerSec={value}, MemAllocated=1GB", ["1", "32.5"], "samples/s (current)", 32.5),
        (
            "{{'train_runtime': 1.2, 'train_samples_per_second': 9.9, "
            "'train_steps_per_second': {value}, 'epoch': 1.0}}",
            ["3.214"],
            "train_steps_per_second, of the whole run",
            3.214,
        ),
        ("steps/s: {value}", ["1", "4.5", "4.5"], "steps/s", 4.5),
        ("speed {value} it per sec", ["1", "4.5"], None, 0.0),
        ("samples/sec: {value}", ["1", "62", "64", "63"], "samples/s", 63.0),
        ("Throughput {value} images/s", ["1", "1,062.5"], "samples/s", 1062.5),
        ("step_time: {value}", ["9", "0.5", "0.5"], "step time", 0.5),
        ("iter {at}: loss 4.2, time {value}ms, mfu 31%", ["9", "135.2"], "time (ms)", 135.2),
        (TQDM, ["1.00s/it", "1.98it/s", "2.02it/s", "2.00it/s"], "it/s", 2.0),
        (TQDM, ["9.0s/it", "1.25s/it", "1.25s/it"], "it/s", 0.8),
        ("epoch {at}: loss {value}, 2026-11-28 10:00", ["1.0", "0.9"], None, 0.0),
        ("uptime: {value} ms later, times 3 it", ["1.0"], None, 0.0),
        ("tokens/s: {value}", ["nan", "0", "inf"], None, 0.0),
    ],
)
def test_forms_of_common_programs(
    form: str, values: list[str], metric: str | None, value: float
) -> None:
    found = read_speed([b"# starting\n", _output(form, *values)])
    assert (found and found.metric) == metric
    if found is not None:
        assert found.value == pytest.approx(value)
        assert found.values == len(values)


def test_the_first_fifth_is_warm_up() -> None:
    slow, warm = ["10"] * 3, ["100"] * 12
    found = read_speed([_output("steps/s: {value}", *slow, *warm)])
    assert found == JobSpeed("steps/s", 100.0, values=15, left_out=3, rounding=0.005)


@pytest.mark.parametrize(
    ("text", "rounding"),
    [("0.052", 0.0005 / 0.052), ("7,254", 0.5 / 7254), ("1.5e3", 50 / 1500), ("2", 0.25)],
)
def test_rounding_is_half_of_the_last_digit(text: str, rounding: float) -> None:
    found = read_speed([_output("steps/s: {value}", text)])
    assert found is not None
    assert found.rounding == pytest.approx(rounding)


def test_the_users_expression_decides() -> None:
    output = _output("tps: 7 | MFU {value} | {value} s", "10", "40", "40")
    rate, time = user_metric(r"MFU ([\d.]+)"), user_metric(r"(?P<time>[\d.]+) s$")
    assert read_speed([output], rate) == JobSpeed(r"MFU ([\d.]+)", 40.0, 3, 1, rounding=0.0125)
    found = read_speed([output], time)
    assert found is not None
    assert (found.speed, found.value, found.is_time) == (1 / 40, 40.0, True)
    assert read_speed([b"nothing"], rate) is None


@pytest.mark.parametrize("expression", ["tps: [0-9]+", "tps: (", ""])
def test_an_expression_without_a_group_is_refused(expression: str) -> None:
    with pytest.raises(InputError, match="no group|unterminated"):
        user_metric(expression)
