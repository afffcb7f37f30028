# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv env`: settings, conflicts and the threshold of a study."""

import os
from pathlib import Path

import pytest

from nccltune.app.env import sendrecv_conflicts, sendrecv_deployment
from nccltune.model.errors import InputError, PlatformError
from nccltune.native import sendrecv_path
from tests.programs import completed
from tests.unit.runs import Cli

LIBRARY = Path("/opt/nccltune/lib/libnccltune-sendrecv.so")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name == "NCCLTUNE_NATIVE_DIR":
            continue
        if name.startswith("NCCL") or name in ("LD_PRELOAD", "CUDA_DEVICE_MAX_CONNECTIONS"):
            monkeypatch.delenv(name)


def test_a_program_started_with_the_lines_has_the_library(cli: Cli) -> None:
    lines = cli("sendrecv", "env").out
    done = completed(
        ["sh", "-c", f"{lines}\nexec cat /proc/self/maps /proc/self/environ"], check=True
    )
    assert str(sendrecv_path().resolve()) in done.stdout
    assert "\0NCCLTUNE_SENDRECV=1\0" in done.stdout
    assert done.stderr == ""


def test_the_library_is_also_installed_as_libnccl() -> None:
    deployed = sendrecv_deployment()
    as_nccl = sendrecv_path().parent / "nccltune-sendrecv"
    assert (as_nccl / "libnccl.so.2").is_file()
    assert f"put {as_nccl} first in LD_LIBRARY_PATH" in deployed.meanings["LD_PRELOAD"]


def test_the_path_of_the_library_can_be_given(cli: Cli) -> None:
    document = cli("sendrecv", "env", "--library", LIBRARY, "--json").document
    assert document["settings"]["LD_PRELOAD"] == str(LIBRARY)
    assert document["settings"]["NCCLTUNE_SENDRECV"] == "1"
    assert document["meanings"].keys() == document["settings"].keys()
    assert document["rules"] is None


@pytest.mark.parametrize("path", ["/a b/lib.so", "/a:b/lib.so"])
def test_paths_that_the_loader_would_cut_are_refused(path: str) -> None:
    with pytest.raises(InputError, match="colon or a blank"):
        sendrecv_deployment(library=Path(path))


def test_settings_that_conflict_are_named() -> None:
    settings = sendrecv_deployment(library=LIBRARY).settings
    assert sendrecv_conflicts({}, settings) == []
    assert sendrecv_conflicts({"LD_PRELOAD": str(LIBRARY)}, settings) == []
    environment = {"LD_PRELOAD": "/lib/libjemalloc.so", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    preload, connections = sendrecv_conflicts(environment, settings)
    assert f"{LIBRARY}:/lib/libjemalloc.so" in preload
    assert connections.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1 is set")
    (few,) = sendrecv_conflicts({"CUDA_DEVICE_MAX_CONNECTIONS": "7"}, settings)
    assert few.startswith("CUDA_DEVICE_MAX_CONNECTIONS=7 is set: NCCL then carries everything")
    assert sendrecv_conflicts({"CUDA_DEVICE_MAX_CONNECTIONS": "16"}, settings) == []


def test_connections_are_requested_unless_their_number_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert sendrecv_deployment(library=LIBRARY).settings[name] == "32"
    monkeypatch.setenv(name, "1")
    assert sendrecv_deployment(library=LIBRARY).settings[name] == "1"


def test_a_library_that_is_not_installed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path))
    with pytest.raises(PlatformError, match="the library for sends and receives"):
        sendrecv_deployment()


def kept(path: Path, text: str) -> Path:
    """Return a study with the settings of a send/recv comparison."""
    path.mkdir()
    (path / "sendrecv.conf").write_text(text)
    return path


def test_the_threshold_of_a_study_is_printed_with_the_library(tmp_path: Path, cli: Cli) -> None:
    study = kept(tmp_path / "study", "# why\nNCCLTUNE_SENDRECV_FROM=1048576\n")
    document = cli("sendrecv", "env", study, "--json").document
    assert document["settings"] == {
        "LD_PRELOAD": str(sendrecv_path()),
        "NCCLTUNE_SENDRECV": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "NCCLTUNE_SENDRECV_FROM": "1048576",
    }
    assert document["meanings"].keys() == document["settings"].keys()
    assert document["meanings"]["NCCLTUNE_SENDRECV_FROM"].endswith(f"by {study}.")
    (study / "p2p.conf").write_text("NCCL_BUFFSIZE=8388608\n")
    out, err = cli("env", study)
    assert out == "export NCCL_BUFFSIZE=8388608\n"
    assert f"threshold for copy engines: nccltune sendrecv env {study}" in err


def test_where_copy_engines_do_not_pay_the_library_stays_off(tmp_path: Path, cli: Cli) -> None:
    study = kept(tmp_path / "study", "NCCLTUNE_SENDRECV=0\n")
    out, err = cli("sendrecv", "env", study)
    assert "export NCCLTUNE_SENDRECV=0" in out
    assert "NCCLTUNE_SENDRECV=1" not in out
    assert "do not pay there" in err


def test_a_study_without_the_needed_comparison_names_the_verb_for_it(
    tmp_path: Path, cli: Cli
) -> None:
    assert f"nccltune sendrecv sweep -o {tmp_path}" in cli("sendrecv", "env", tmp_path, code=2).err
    study = kept(tmp_path / "study", "NCCLTUNE_SENDRECV_FROM=1048576\n")
    assert f"nccltune sendrecv env {study}" in cli("env", study, code=2).err


def test_lines_of_a_study_that_are_not_the_librarys_are_refused(tmp_path: Path, cli: Cli) -> None:
    study = kept(tmp_path / "study", "LD_PRELOAD=/x.so\n")
    err = cli("sendrecv", "env", study, code=2).err
    assert "sendrecv.conf: LD_PRELOAD is not a setting of the library" in err
