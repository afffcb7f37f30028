# SPDX-License-Identifier: Apache-2.0
"""The published curves, and reference files of users."""

from pathlib import Path

import pytest

from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.reference.alike import gpu_class
from nccltune.reference.curves import ReferenceCurve, add_curves, published_curves, read_curves


def curve(points: tuple[tuple[int, float], ...], **facts: object) -> ReferenceCurve:
    plain: dict[str, object] = {
        "system": "ours",
        "gpu": "H100",
        "gpus": 8,
        "nodes": 1,
        "collective": Collective.ALLREDUCE,
        "source": "run.txt",
        "read": "own",
    }
    return ReferenceCurve(**{**plain, **facts}, points=points)  # type: ignore[arg-type]


def test_every_published_figure_has_a_source_and_a_known_gpu() -> None:
    curves = published_curves()
    assert len(curves) == 130
    assert all(item.source.startswith("https://") for item in curves)
    assert all(gpu_class(item.gpu) for item in curves)
    rates = [item.busbw_at(size) for item in curves for size, _ in item.points]
    # The fastest published is 839 GB/s of an NVL72 rack.
    assert max(rate for rate in rates if rate) == pytest.approx(839, abs=1)


def test_the_figures_are_those_that_the_sources_state() -> None:
    found = {
        (item.system, item.nodes, item.nccl): item.busbw_at(8 << 30)
        for item in published_curves()
        if item.collective is Collective.ALLREDUCE and item.fault is None
    }
    assert found["OCI BM.GPU.H100.8", 2, "2.23.4"] == pytest.approx(470, abs=1)
    assert found["CoreWeave H100", 12, None] == pytest.approx(386.56, abs=0.1)


def test_between_sizes_times_are_interpolated_and_beyond_them_nothing_is_known() -> None:
    item = curve(((1 << 20, 100.0), (4 << 20, 250.0), (64 << 20, 4000.0)))
    assert item.busbw_at(1 << 20) == pytest.approx((1 << 20) / 100e3 * 1.75)
    assert item.busbw_at(2 << 20) == pytest.approx((2 << 20) / 150e3 * 1.75)
    assert item.busbw_at(16 << 20) is None, "too far from both neighbours"
    assert item.busbw_at(128 << 20) is None
    assert item.busbw_at(1 << 10) is None


def test_from_1_gib_on_the_nearest_size_stands_for_others() -> None:
    item = curve(((1 << 29, 3000.0), (2 << 30, 8000.0)))
    assert item.busbw_at(8 << 30) == item.busbw_at(2 << 30)
    assert item.busbw_at(1 << 30) == item.busbw_at(2 << 30)
    stated = curve((), busbw_gb_per_s=400.0)
    assert stated.busbw_at(1 << 30) == 400.0
    assert stated.busbw_at(1 << 29) is None


def test_own_curves_are_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "more" / "ours.jsonl"
    own = curve(((1 << 20, 100.0),), nic_gbps_per_gpu=400.0)
    assert add_curves(file, [own, own]) == 1
    assert add_curves(file, [own]) == 0
    assert read_curves(file) == read_curves(file.parent) == [own]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "missing required field"),
        ('{"system": 3}', "Expected `str`"),
        ("not json", "malformed"),
        (
            '{"system":"a","gpu":"H100","gpus":8,"nodes":9,"collective":"allreduce","source":"x",'
            '"read":"own","points":[[8,1.0]]}',
            "8 GPUs on 9 nodes",
        ),
        (
            '{"system":"a","gpu":"H100","gpus":8,"nodes":1,"collective":"allreduce","source":"x",'
            '"read":"own","points":[[8,0]]}',
            "not above 0",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "ours.jsonl"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=words) as raised:
        read_curves(file)
    assert raised.value.where == f"{file}:2"
