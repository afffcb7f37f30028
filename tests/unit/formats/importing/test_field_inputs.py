# SPDX-License-Identifier: Apache-2.0
"""Outputs as people bring them: what stands around the table decides what the rows are."""

from pathlib import Path

import pytest

from nccltune.app.importing import ImportRequest, ImportRun
from nccltune.formats.importing.importer import Imported, ImportState
from nccltune.model.choice import choice_label
from nccltune.model.errors import InputError
from nccltune.study.files import Study
from tests.unit.formats.reading_tools import Read, files

FIELD = Path(__file__).parents[3] / "data" / "field"
SETTINGS = FIELD / "log-03-settings-of-the-command-line"
BLOCKING = FIELD / "log-05-blocking-and-unaligned"


def read(path: Path) -> Read:
    (found,) = files(path)
    return found


def import_into(study: Path, *paths: Path, split: bool = False) -> Imported:
    request = ImportRequest(study, split=split)
    return ImportRun(request, list(map(str, paths))).run().imported


def difference(study: Path, *paths: Path) -> str:
    with pytest.raises(InputError) as caught:
        import_into(study, *paths)
    assert not study.exists()
    return caught.value.message


def test_two_nodes_of_the_default() -> None:
    found = read(FIELD / "log-01-default-only" / "run.txt")
    assert found.report.scales == {"2x16": 20}
    assert found.labels == {"default"}
    assert "one_host" not in found.flags


def test_machines_with_one_host_name_are_counted_by_their_gpus() -> None:
    found = read(FIELD / "log-02-two-machines-one-name" / "run.txt")
    assert found.report.scales == {"2x16": 18}
    assert "one_host" not in found.flags
    assert "2 machines under 1 host name" in found.sentence("scale_inferred")


def test_runs_with_other_settings_in_their_command_lines_are_not_mixed(tmp_path: Path) -> None:
    message = difference(tmp_path / "a", SETTINGS / "run1.txt", SETTINGS / "run2.txt")
    assert "NCCL_P2P_DISABLE: not set in run1.txt; 1 in run2.txt" in message
    assert "NCCL_MAX_NCHANNELS: not set in run1.txt; 2 in run2.txt" in message
    done = import_into(tmp_path / "a", SETTINGS / "run1.txt", SETTINGS / "run2.txt", split=True)
    assert [Study(Path(path)).platform().settings for path in done.studies] == [
        {},
        {"NCCL_MAX_NCHANNELS": "2", "NCCL_P2P_DISABLE": "1"},
    ]


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("run3.txt", "tuner_loaded", "libnccl-tuner-site.so"),
        ("run4.txt", "library_preloaded", "libmscclpp_nccl.so"),
    ],
)
def test_a_tuner_or_another_library_is_no_plain_default(
    tmp_path: Path, name: str, kind: str, word: str
) -> None:
    found = read(SETTINGS / name)
    assert kind in found.doubtful
    assert word in found.sentence(kind)
    assert word in difference(tmp_path / "a", SETTINGS / "run1.txt", SETTINGS / name)


@pytest.mark.parametrize("name", ["d1.txt", "d1.json"])
def test_rows_of_a_device_kernel_are_left_out(tmp_path: Path, name: str) -> None:
    path = FIELD / "log-04-device-api-kernel" / name
    found = read(path)
    assert found.samples == []
    assert found.report.rows == 9
    assert found.doubtful == {"device_kernel"}
    assert "-D 3 runs a kernel of nccl-tests" in found.sentence("device_kernel")
    (outcome,) = import_into(tmp_path / "a", path).files
    assert outcome.outcome is ImportState.EMPTY


@pytest.mark.parametrize(
    ("name", "words"),
    [("z1.txt", "-z 1: wait and barrier after each call"), ("u1.txt", "-u 1: unaligned buffers")],
)
def test_blocking_and_unaligned_runs_are_kept_apart(tmp_path: Path, name: str, words: str) -> None:
    assert read(BLOCKING / "z0.txt").doubtful == set()
    assert words in read(BLOCKING / name).sentence("condition")
    assert "condition" in read(BLOCKING / name).doubtful
    message = difference(tmp_path / "a", BLOCKING / "z0.txt", BLOCKING / name)
    assert f"measured: plain calls in z0.txt; {words} in {name}" in message
    import_into(tmp_path / "b", BLOCKING / name)
    with pytest.raises(InputError, match="not of the platform of this study"):
        import_into(tmp_path / "b", BLOCKING / "z0.txt")


def test_types_and_operations_are_conditions_of_their_own() -> None:
    found = read(FIELD / "log-06-all-types-and-operations" / "all.txt")
    kinds = {(sample.dtype, sample.redop) for sample in found.samples}
    assert len(kinds) == 12
    points = {
        (sample.dtype, sample.redop, sample.bytes, sample.in_place) for sample in found.samples
    }
    assert len(points) == len(found.samples) == 48
    assert {sample.round for sample in found.samples} == {0}
    assert {choice_label(sample.choice) for sample in found.samples} == {"default"}
