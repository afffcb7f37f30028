# SPDX-License-Identifier: Apache-2.0
"""`nccltune env` and `nccltune net env`: settings, forms and conflicts."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from nccltune.app.env import (
    FORMATS,
    WITHOUT_COMMENTS,
    net_conflicts,
    net_deployment,
    record_deployment,
    rules_deployment,
)
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.programs import completed
from tests.unit.runs import Cli

PLUGIN = Path("/opt/nccltune/lib/libnccl-net-nccltune.so")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("NCCL"):
            monkeypatch.delenv(name)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of an installed plugin, with a blank in its folder."""
    plugin = tmp_path / "native parts" / "lib" / "libnccl-net-nccltune.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"")
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path / "native parts"))
    return plugin


def printed(cli: Cli, *arguments: str, verb: str = "net env") -> tuple[str, str]:
    out, err = cli(*verb.split(), *arguments)
    return out, err


def test_without_a_version_the_lines_are_for_all_that_take_a_path() -> None:
    deployed = net_deployment(plugin=PLUGIN)
    assert deployed.settings == {
        "NCCL_NET_PLUGIN": str(PLUGIN),
        "NCCL_NET": "nccltune",
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
    }
    assert deployed.meanings.keys() == deployed.settings.keys()
    assert "2.27.3" in deployed.meanings["NCCL_NET_PLUGIN"]
    assert deployed.warnings == []


@pytest.mark.parametrize("version", ["2.13", "2.18.6", "2.20.5", "2.27.3", "2.27", "v2.20.5-1"])
def test_versions_that_take_no_path_get_the_name(version: str) -> None:
    deployed = net_deployment(plugin=PLUGIN, nccl=version)
    assert deployed.settings == {"NCCL_NET_PLUGIN": "nccltune", "NCCL_NET": "nccltune"}
    assert deployed.warnings[0].startswith("/opt/nccltune/lib has to be in LD_LIBRARY_PATH")


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("2.21.5", False),
        ("2.27.5", False),
        ("2.28.3", True),
        ("2.28", True),
        ("2.28.9+cuda12.9", True),
        ("2.29.7", True),
        ("2.30.3", False),
        ("2.32.3", False),
    ],
)
def test_the_plugin_is_kept_where_nccl_forgets_its_name(version: str, kept: bool) -> None:
    deployed = net_deployment(plugin=PLUGIN, nccl=version)
    assert deployed.settings["NCCL_NET_PLUGIN"] == str(PLUGIN)
    assert ("NCCL_NET_PLUGIN_REF_COUNT" in deployed.settings) is kept
    assert deployed.warnings == []


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.12.12", "cannot load the network plugin"),
        ("1.0", "cannot load the network plugin"),
        ("two", "is not a version"),
        ("2", "is not a version"),
        ("", "is not a version"),
    ],
)
def test_impossible_versions_are_refused(version: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        net_deployment(plugin=PLUGIN, nccl=version)


def test_paths_that_nccl_cannot_take_are_refused() -> None:
    with pytest.raises(InputError, match="comma"):
        net_deployment(plugin=Path("/a,b/libnccl-net-nccltune.so"))
    with pytest.raises(InputError, match="254 bytes"):
        net_deployment(plugin=Path("/" + "x" * 254))
    # NCCL 2.20 takes a name, so the path may hold a comma.
    net_deployment(plugin=Path("/a,b/libnccl-net-nccltune.so"), nccl="2.20.5")


def test_settings_that_conflict_are_named() -> None:
    settings = net_deployment(plugin=PLUGIN).settings
    environment = {
        "NCCL_NET": "Socket",
        "NCCL_NET_PLUGIN": str(PLUGIN),
        "NCCL_NSOCKS_PERTHREAD": "4",
        "NCCL_SOCKET_IFNAME": "eth0",
    }
    assert net_conflicts(environment, settings) == [
        "NCCL_NET=Socket is set and will be replaced",
        "NCCL_NSOCKS_PERTHREAD is set: it is for NCCL's own sockets; the plugin has "
        "NCCLTUNE_NET_FLOWS",
    ]


def test_a_shell_takes_the_lines(installed: Path, cli: Cli) -> None:
    out, err = printed(cli)
    assert err == ""
    done = completed(["bash", "-c", f"eval {shlex.quote(out)} && env"], check=True)
    lines = done.stdout.splitlines()
    assert f"NCCL_NET_PLUGIN={installed}" in lines
    assert "NCCL_NET=nccltune" in lines
    assert "NCCL_NET_PLUGIN_REF_COUNT=1" in lines


def test_each_line_has_its_meaning_as_a_comment_above(installed: Path, cli: Cli) -> None:
    out, _ = printed(cli, "--nccl-version", "2.30.7")
    comment, plugin, *others = out.splitlines()
    assert comment == "# Loaded in place of NCCL's own TCP transport."
    assert plugin == f"export NCCL_NET_PLUGIN={shlex.quote(str(installed))}"
    assert all(line.startswith("# ") for line in others[:-1])
    assert others[-1] == "export NCCL_NET=nccltune"
    assert max(len(line) for line in others) <= 100


def test_nccl_conf_is_what_nccl_reads(installed: Path, tmp_path: Path, cli: Cli) -> None:
    out, _ = printed(cli, "--format", "nccl.conf")
    (tmp_path / "nccl.conf").write_text(out)
    assert read_conf(tmp_path / "nccl.conf") == net_deployment(plugin=installed).settings


def test_kubernetes_lines_keep_their_comments(installed: Path, cli: Cli) -> None:
    out, _ = printed(cli, "--format", "kubernetes")
    lines = [line for line in out.splitlines() if not line.startswith("# ")]
    assert lines == [
        "env:",
        "- name: NCCL_NET_PLUGIN",
        f"  value: {json.dumps(str(installed))}",
        "- name: NCCL_NET",
        '  value: "nccltune"',
        "- name: NCCL_NET_PLUGIN_REF_COUNT",
        '  value: "1"',
    ]


@pytest.mark.parametrize(("form", "flag"), [("mpirun", "-x"), ("docker", "-e")])
def test_meanings_of_a_single_line_are_printed_to_stderr(form: str, flag: str, cli: Cli) -> None:
    out, err = printed(cli, "--format", form, "--plugin", str(PLUGIN), "--nccl-version", "2.28.9")
    assert out == (
        f"{flag} NCCL_NET_PLUGIN={PLUGIN} {flag} NCCL_NET=nccltune "
        f"{flag} NCCL_NET_PLUGIN_REF_COUNT=1\n"
    )
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "NCCL_NET_PLUGIN",
        "NCCL_NET",
        "NCCL_NET_PLUGIN_REF_COUNT",
    ]


def test_json_has_settings_and_meanings(cli: Cli) -> None:
    out, err = printed(cli, "--plugin", str(PLUGIN), "--json")
    document = json.loads(out)
    deployed = net_deployment(plugin=PLUGIN)
    assert document == {
        "schema_version": 1,
        "settings": deployed.settings,
        "rules": None,
        "meanings": deployed.meanings,
    }
    assert err == ""


def test_a_manual_step_is_a_warning(cli: Cli) -> None:
    out, err = printed(cli, "--plugin", str(PLUGIN), "--nccl-version", "2.20.5")
    assert "export NCCL_NET_PLUGIN=nccltune" in out
    assert err.startswith("warning: /opt/nccltune/lib has to be in LD_LIBRARY_PATH")


def test_the_lines_of_rules(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "tuner.conf").write_text("allreduce,0,1024,ring,ll,-1,-1,-1\n")
    arguments = (str(tmp_path), "--plugin", "/p/tuner.so", "--format", "nccl.conf")
    alone, _ = printed(cli, *arguments, verb="env")
    assert alone == (
        f"NCCL_TUNER_PLUGIN=/p/tuner.so\nNCCL_TUNER_CONFIG_FILE={tmp_path / 'tuner.conf'}\n"
        "NCCLTUNE_CONFIG_HASH=1f9548ecae64ac5f\n"
    )


@pytest.fixture
def of_rules(tmp_path: Path) -> Path:
    """Return a study with a candidate and a sure rule, measured on emulated nodes."""
    study = Study.create(tmp_path / "study")
    platform = Platform(name="x", gpu="NVIDIA H200", nodes=4, emulated_nodes=True)
    study.write_json(study.platform_path, platform)
    study.config_path.write_text(
        '# nccltune: schema=1 gpu="NVIDIA H200"\n'
        "# candidate: best of 6\nallreduce,0,9,ring,ll,-1,4,4\n"
        "# sure: 1.30x\nallreduce,10,19,ring,ll,-1,4,4\n"
    )
    return study.path


def test_candidates_and_emulated_nodes_are_warned_about(of_rules: Path) -> None:
    deployed = rules_deployment(of_rules, plugin=Path("/p/tuner.so"))
    assert deployed.rules == 2
    assert deployed.warnings == [
        f"1 of 2 rules is a candidate, not proven: prove them first: nccltune verify {of_rules}",
        "the rules apply to 4 nodes, 4 ranks",
        "the rules were measured with 4 emulated nodes: real nodes may need others; measure there "
        "before you deploy them",
    ]


def test_rules_for_any_scale_are_only_predicted_at_others(of_rules: Path) -> None:
    with (of_rules / "tuner.conf").open("a") as file:
        file.write("# sure: 1.30x\nallreduce,20,29,ring,ll,-1,-1,-1\n")
    warnings = rules_deployment(of_rules, plugin=Path("/p/tuner.so")).warnings
    assert warnings[1] == (
        "1 of 3 rules applies at every scale, but is only predicted at scales that were not"
        " measured: what is faster at one can be slower at the next; prove"
        f" them there first: nccltune verify {of_rules}"
    )


def test_rules_that_nothing_is_known_of_are_warned_about(of_rules: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("# from a colleague\nallreduce,0,9,ring,ll,-1,4,4\n")
    warning, scales = rules_deployment(own, plugin=Path("/p/tuner.so")).warnings
    assert scales == "the rules apply to 4 nodes, 4 ranks"
    assert warning.startswith("nothing states where 1 of 1 rule are from")
    assert warning.endswith("measure first: nccltune verify STUDY")
    with (of_rules / "tuner.conf").open("a") as file:
        file.write("allreduce,20,29,ring,ll,-1,4,4\n")
    warnings = rules_deployment(of_rules, plugin=Path("/p/tuner.so")).warnings
    assert any("where 1 of 3 rules are from" in warning for warning in warnings)


def test_a_file_away_from_its_study_knows_how_it_was_measured(
    of_rules: Path, tmp_path: Path
) -> None:
    text = (of_rules / "tuner.conf").read_text().replace("# candidate", "# proven")
    alone = tmp_path / "alone.conf"
    alone.write_text(f'# nccltune: measured="in a replay of a"\n{text}')
    deployed = rules_deployment(alone, plugin=Path("/p/tuner.so"))
    assert [word for word in deployed.warnings if "in a replay of a: real nodes" in word]
    assert "candidate" not in " ".join(deployed.warnings)


@pytest.mark.parametrize(("model", "warned"), [("NVIDIA H200", False), ("Tesla T4", True)])
def test_rules_of_another_gpu_are_warned_about(
    of_rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, warned: bool
) -> None:
    driver = tmp_path / "driver"
    (driver / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (driver / "gpus" / "0000:01:00.0" / "information").write_text(f"Model: \t\t {model}\nIRQ: 4\n")
    monkeypatch.setattr("nccltune.app.env._DRIVER", driver)
    found = rules_deployment(of_rules, plugin=Path("/p/tuner.so")).warnings
    words = "the rules are of another machine: of NVIDIA H200, and this one has Tesla T4"
    assert (words in found) is warned


def test_a_configuration_without_a_rule_deploys_nothing(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "tuner.conf").write_text("# nothing\n")
    out, err = cli("env", tmp_path / "tuner.conf", code=1)
    assert out == ""
    assert "has no rule, so there is nothing to deploy" in err
    assert "find rules: nccltune tune STUDY" in err
    assert cli("env", tmp_path / "tuner.conf", "--json", code=1).document["settings"] == {}


def test_settings_of_experiments_are_deployed_without_a_rule(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "tuner.conf").write_text("# nothing\n")
    (tmp_path / "try.conf").write_text("NCCL_NTHREADS=256\n")
    out, err = printed(cli, str(tmp_path), verb="env")
    assert out == "export NCCL_NTHREADS=256\n"
    assert "has no rule" in err


def test_a_plugin_that_is_not_installed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path))
    with pytest.raises(PlatformError, match="the network plugin is not there"):
        net_deployment()


ROW = "allreduce,1024,65536,{},ll,-1,{nodes},{nodes}\n"


def scales(folder: Path, *rows: str) -> list[str]:
    """Write a configuration for each row, and return their paths."""
    paths = [folder / f"{number}.conf" for number in range(len(rows))]
    for path, row in zip(paths, rows, strict=True):
        path.write_text(row)
    return [str(path) for path in paths]


def test_several_scales_become_one_file(cli: Cli, tmp_path: Path) -> None:
    parts = scales(tmp_path, ROW.format("tree", nodes=2), ROW.format("ring", nodes=4))
    target = tmp_path / "site.conf"
    out, _ = cli("env", *parts, "-o", target, "--plugin", PLUGIN, "--config-path", "/etc/t.conf")
    assert target.read_text().count("allreduce,1024") == 2
    assert out.splitlines() == [
        f"export NCCL_TUNER_PLUGIN={PLUGIN}",
        "export NCCL_TUNER_CONFIG_FILE=/etc/t.conf",
        f"export NCCLTUNE_CONFIG_HASH={config_hash(target.read_bytes())}",
    ]
    before = target.stat()
    assert cli("env", *parts, "-o", target, "--plugin", PLUGIN, "--dry-run")[0].count("export") == 3
    assert target.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("second", "more", "message"),
    [
        (
            ROW.format("ring", nodes=2),
            ["-o", "site.conf"],
            "are different rules for the same calls",
        ),
        (ROW.format("ring", nodes=4), [], "several studies need one file"),
    ],
)
def test_scales_that_do_not_become_one_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, more: list[str],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    parts = scales(tmp_path, ROW.format("tree", nodes=2), second)
    _, err = cli("env", *parts, "--plugin", PLUGIN, *more, code=2)
    assert message in err
    assert not (tmp_path / "site.conf").exists()


def test_a_pod_gets_no_path_of_this_machine(cli: Cli, tmp_path: Path) -> None:
    (config,) = scales(tmp_path, ROW.format("tree", nodes=2))
    out, err = cli("env", config, "--format", "kubernetes")
    assert "/nccltune/libnccl-tuner-nccltune.so" in out
    assert str(tmp_path) not in out
    assert "the pod needs /nccltune/libnccl-tuner-nccltune.so and /etc/nccltune/tuner.conf" in err
    out, _ = cli("env", config, "--format", "kubernetes", "--plugin", PLUGIN)
    assert str(PLUGIN) in out


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "native" / "lib" / "libnccl-profiler-nccltune.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    monkeypatch.setenv("NCCLTUNE_NATIVE_DIR", str(tmp_path / "native"))
    return path


def test_record_alone(
    cli: Cli, recorder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = f"the calls {'of a job ' * 9}"
    out, err = printed(cli, "--record", folder, "--json", verb="env")
    document = json.loads(out)
    assert document["settings"] == {
        "NCCL_PROFILER_PLUGIN": str(recorder),
        "NCCLTUNE_RECORD": str(tmp_path / folder),
    }
    assert document["meanings"].keys() == document["settings"].keys()
    assert not err
    shell, _ = printed(cli, "--record", folder, verb="env")
    # A path with blanks is quoted, and its line to paste is not wrapped.
    assert shlex.join(["touch", str(tmp_path / folder / ".write")]) in [
        line.removeprefix("# ") for line in shell.splitlines()
    ]
    script = f'{shell}\nprintf %s "$NCCLTUNE_RECORD"'
    assert completed(["sh", "-ec", script]).stdout == str(tmp_path / folder)


@pytest.mark.parametrize(
    ("variables", "following"),
    [
        ({"NCCL_PROFILER_PLUGIN": "inspector"}, "inspector"),
        ({"NCCL_PROFILER_PLUGIN": "none"}, None),
        ({"NCCL_PROFILER_PLUGIN": "libnccl-profiler-nccltune.so"}, None),
        ({"NCCL_PROFILER_PLUGIN": "nccltune", "NCCLTUNE_RECORD_NEXT": "/x.so"}, "/x.so"),
    ],
)
def test_record_keeps_another_profiler(
    recorder: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    following: str | None,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    deployed = record_deployment(Path("/calls"))
    assert deployed.settings.get("NCCLTUNE_RECORD_NEXT") == following
    assert deployed.settings["NCCL_PROFILER_PLUGIN"] == str(recorder)
    assert all(not words.endswith(" ") for words in deployed.meanings.values())


@pytest.mark.parametrize("form", FORMATS)
def test_record_carries_its_times(
    cli: Cli, recorder: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def shown() -> str:
        return " ".join(printed(cli, "--record", "/calls", "--format", form, verb="env")[0].split())

    unset = shown()
    assert not re.search(r"NCCLTUNE_RECORD_TIMES(=| value)", unset)
    monkeypatch.setenv("NCCLTUNE_RECORD_TIMES", "64")
    assert re.search(r"NCCLTUNE_RECORD_TIMES(=| value: .)64\b", shown())
    if form not in WITHOUT_COMMENTS:
        said = "takes no times unless NCCLTUNE_RECORD_TIMES is set"
        assert said in unset.replace("# ", "")


def test_record_beside_rules(cli: Cli, recorder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "tuner.conf"
    rules.write_text("allreduce,0,1024,tree,ll,-1,2,16,-1,-1\n", encoding="utf-8")
    options = ["--plugin", "/opt/x/libnccl-tuner-nccltune.so", "--record", "/calls", "--json"]
    out, _ = printed(cli, str(rules), *options, verb="env")
    settings = json.loads(out)["settings"]
    assert settings["NCCL_TUNER_PLUGIN"] == "/opt/x/libnccl-tuner-nccltune.so"
    assert settings["NCCL_PROFILER_PLUGIN"] == "/opt/x/libnccl-profiler-nccltune.so"
    assert settings["NCCLTUNE_RECORD"] == "/calls"


def test_record_in_a_pod(cli: Cli) -> None:
    out, err = printed(cli, "--record", "/calls", "--format", "kubernetes", verb="env")
    assert 'value: "/nccltune/libnccl-profiler-nccltune.so"' in out
    assert "tuner.conf" not in err
    assert "/nccltune/libnccl-profiler-nccltune.so" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--record", "file"], "file: is no folder"),
        (["--record", ""], "--record': the path is empty"),
        (["--record", "calls", "-o", "x.conf"], "-o is for rules: name a study"),
        (["--record", "calls", "--config-path", "/x"], "--config-path is for rules: name a study"),
    ],
)
def test_record_refuses(
    cli: Cli, recorder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    out, err = cli("env", *words, "--plugin", recorder, code=2)
    assert message in " ".join(err.split())
    assert not out
    assert not (tmp_path / "x.conf").exists()


@pytest.mark.parametrize(("folder", "warned"), [("calls", False), ("a b/calls", True)])
def test_record_makes_one_folder_only(
    recorder: Path, tmp_path: Path, folder: str, warned: bool
) -> None:
    warnings = record_deployment(tmp_path / folder, recorder=recorder).warnings
    assert bool(warnings) == warned
    assert all(words.endswith(f"mkdir -p '{tmp_path}/{folder}'") for words in warnings)


def test_env_needs_something_to_print(cli: Cli) -> None:
    _, err = cli("env", code=2)
    assert "--record DIR" in err


def test_record_needs_a_path_that_nccl_takes() -> None:
    with pytest.raises(InputError, match="254 bytes"):
        record_deployment(Path("/calls"), recorder=Path("/" + "x" * 254))
