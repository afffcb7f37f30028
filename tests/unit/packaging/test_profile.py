# SPDX-License-Identifier: Apache-2.0
"""The snippet for login shells: nothing by default, else the lines of `nccltune env`."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from nccltune.app.env import deployment, net_deployment, sendrecv_deployment
from tests.programs import completed

PACKAGING = Path(__file__).parents[3] / "packaging"
FOLDER = Path("/usr/lib/nccltune")
SHELLS = ("sh", "bash", "zsh")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    path = shutil.which(request.param)
    if path is None:
        pytest.skip(f"no {request.param} here")
    return path


class Login:
    """What a login shell's children get, by the lines of the configuration."""

    def __init__(self, shell: str, folder: Path) -> None:
        self._shell = shell
        self._conf = folder / "profile.conf"
        text = (PACKAGING / "profile.sh").read_text(encoding="utf-8")
        text = text.replace("@LIBDIR@", str(FOLDER))
        text = text.replace("/etc/nccltune/profile.conf", str(self._conf))
        self._snippet = folder / "nccltune.sh"
        self._snippet.write_text(text, encoding="utf-8")

    def environment(self, conf: str | None, before: Mapping[str, str]) -> dict[str, str]:
        found, messages = self.environment_and_messages(conf, before)
        assert messages == ""
        return found

    def environment_and_messages(
        self, conf: str | None, before: Mapping[str, str]
    ) -> tuple[dict[str, str], str]:
        if conf is not None:
            self._conf.write_text(conf, encoding="utf-8")
        # `env` itself must not load a library that is not there.
        show = f'. {self._snippet}; set +u; while read -r n; do eval "echo $n=\\$$n"; done <<E\n'
        show += "\n".join((*NAMES, "E\n"))
        done = completed(
            [self._shell, "-euc", show], env={"PATH": "/usr/bin:/bin", **before}, check=True
        )
        lines = (line.partition("=") for line in done.stdout.splitlines())
        return {name: value for name, _, value in lines if value}, done.stderr


NAMES = (
    "NCCL_TUNER_PLUGIN",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_NET_PLUGIN",
    "NCCL_NET",
    "NCCL_NET_PLUGIN_REF_COUNT",
    "LD_PRELOAD",
    "NCCLTUNE_SENDRECV",
    "nccltune_tuner",
    "nccltune_net",
    "nccltune_sendrecv",
    "nccltune_name",
)
TUNER = deployment(Path("/etc/nccltune/tuner.conf"), plugin=FOLDER / "libnccl-tuner-nccltune.so")
NET = net_deployment(plugin=FOLDER / "libnccl-net-nccltune.so").settings
SENDRECV = dict(
    sendrecv_deployment(library=FOLDER / "libnccltune-sendrecv.so", study=None).settings
)
# A login shell would set it for programs, too, that set another value where there is none.
del SENDRECV["CUDA_DEVICE_MAX_CONNECTIONS"]


@pytest.fixture
def login(shell: str, tmp_path: Path) -> Login:
    return Login(shell, tmp_path)


def shipped() -> str:
    return (PACKAGING / "profile.conf").read_text(encoding="utf-8")


def test_as_installed_it_sets_nothing(login: Login) -> None:
    assert login.environment(shipped(), {}) == {}


def test_without_its_configuration_it_sets_nothing(login: Login) -> None:
    assert login.environment(None, {}) == {}


@pytest.mark.parametrize(
    ("line", "settings"),
    [("nccltune_tuner=", TUNER), ("nccltune_net=", NET), ("nccltune_sendrecv=", SENDRECV)],
)
def test_a_line_of_the_configuration_sets_what_env_prints(
    login: Login, line: str, settings: dict[str, str]
) -> None:
    conf = shipped().replace(f"#{line}", line)
    assert conf != shipped()
    assert login.environment(conf, {}) == settings


def test_all_together(login: Login) -> None:
    conf = shipped().replace("#nccltune_", "nccltune_")
    assert login.environment(conf, {}) == {**TUNER, **NET, **SENDRECV}


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ({"NCCL_TUNER_PLUGIN": "none"}, {"NCCL_TUNER_CONFIG_FILE": None}),
        ({"NCCL_NET": "IB"}, {"NCCL_NET_PLUGIN": None}),
        ({"NCCL_NET_PLUGIN": "aws-ofi"}, {"NCCL_NET": None}),
        ({"NCCLTUNE_SENDRECV": "0"}, {"LD_PRELOAD": None}),
    ],
)
def test_what_a_user_has_set_is_not_changed(
    login: Login, before: dict[str, str], kept: dict[str, None]
) -> None:
    found = login.environment(shipped().replace("#nccltune_", "nccltune_"), before)
    assert {name: found[name] for name in before} == before
    assert not set(kept) & set(found)


@pytest.mark.parametrize(
    "before",
    [
        {"NCCL_TUNER_CONFIG_FILE": "/home/me/mine.conf"},
        {"NCCL_NET_PLUGIN_REF_COUNT": "0"},
        {"NCCL_TUNER_CONFIG_FILE": "/home/me/mine.conf", "NCCL_NET_PLUGIN_REF_COUNT": "0"},
    ],
)
def test_a_variable_that_a_user_has_set_keeps_its_value_beside_ours(
    login: Login, before: dict[str, str]
) -> None:
    found = login.environment(shipped().replace("#nccltune_", "nccltune_"), before)
    assert found == {**TUNER, **NET, **SENDRECV, **before}


@pytest.mark.parametrize("name", [*TUNER, *NET, "NCCLTUNE_SENDRECV"])
@pytest.mark.parametrize("value", ["mine", ""])
def test_no_variable_is_overwritten(login: Login, name: str, value: str) -> None:
    found = login.environment(shipped().replace("#nccltune_", "nccltune_"), {name: value})
    assert found.get(name, "") == value


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        ("NCCL_TUNER_PLUGIN=none", {*TUNER}),
        ("NCCL_TUNER_CONFIG_FILE=/home/me/mine.conf", {"NCCL_TUNER_CONFIG_FILE"}),
        ("NCCL_NET=IB", {*NET}),
        ("NCCL_NET_PLUGIN_REF_COUNT=0", {"NCCL_NET_PLUGIN_REF_COUNT"}),
        ("#NCCL_NET=IB\nNCCL_NET_GDR_LEVEL=SYS", set()),
    ],
)
@pytest.mark.parametrize("variable", ["HOME", "NCCL_CONF_FILE"])
def test_a_line_of_the_users_nccl_conf_is_not_overridden(
    login: Login, tmp_path: Path, variable: str, line: str, left_out: set[str]
) -> None:
    file = tmp_path / ".nccl.conf"
    file.write_text(f"NCCL_DEBUG=WARN\n{line}\n", encoding="utf-8")
    before = {variable: str(tmp_path if variable == "HOME" else file)}
    found = login.environment(shipped().replace("#nccltune_", "nccltune_"), before)
    assert found.keys() == {*TUNER, *NET, *SENDRECV} - left_out


def test_a_shell_within_a_shell_changes_nothing_more(login: Login) -> None:
    conf = shipped().replace("#nccltune_", "nccltune_")
    once = login.environment(conf, {})
    # The shell that starts here must not load a library that is not there.
    del once["LD_PRELOAD"]
    assert login.environment(conf, once) == once


@pytest.mark.parametrize("yes", ["yes", "Yes", "YES", "y", "true", "True", "on", "1"])
def test_a_yes_in_any_spelling(login: Login, yes: str) -> None:
    conf = f"nccltune_net={yes}\nnccltune_sendrecv='{yes}'\n"
    assert login.environment(conf, {}) == {**NET, **SENDRECV}


@pytest.mark.parametrize("no", ["no", "No", "false", "FALSE", "off", "0", "n", "''"])
def test_a_no_in_any_spelling(login: Login, no: str) -> None:
    assert login.environment(f"nccltune_net={no}\nnccltune_sendrecv={no}\n", {}) == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nccltune_net=maybe", "neither yes nor no"),
        ("nccltune_sendrecv=2", "neither yes nor no"),
        ("nccltune_tuner=yes", "not the absolute path of a file of rules"),
        ("nccltune_tuner=tuner.conf", "not the absolute path of a file of rules"),
    ],
)
def test_a_line_that_cannot_be_understood_is_reported(login: Login, line: str, reason: str) -> None:
    found, messages = login.environment_and_messages(line + "\n", {})
    assert found == {}
    assert messages.splitlines() == [
        message for message in messages.splitlines() if message.endswith(f"is ignored: {reason}")
    ]
    assert messages.count("\n") == 1
    assert line in messages


def test_another_library_stays_loaded(login: Login) -> None:
    found = login.environment("nccltune_sendrecv=yes\n", {"LD_PRELOAD": "libm.so.6"})
    assert found["LD_PRELOAD"] == SENDRECV["LD_PRELOAD"] + ":libm.so.6"
