# SPDX-License-Identifier: Apache-2.0
"""The plugin host as installed, with our plugin and with hostile ones."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nccltune.model.choice import Algorithm, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError
from nccltune.model.scale import Scale
from nccltune.native import AlgorithmProtocol, PluginHost, TunerAnswer, host_path, tuner_path
from tests.programs import completed

ROOT = Path(__file__).parents[2]
SCALE = Scale(nodes=4, ranks=32)
HOUR_S = 3600.0
"""A limit that no test waits for."""


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin that follows SCRIPTED_TUNER, built from the native tests' source."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler: make test needs one, too"
    path = tmp_path_factory.mktemp("plugin") / "libscripted.so"
    source = ROOT / "tests/native/host/scripted_plugin.cc"
    flags = ["-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'native'}"]
    subprocess.run([*compiler.split(), *flags, str(source), "-o", str(path), "-ldl"], check=True)
    return path


@pytest.fixture
def start(scripted: Path) -> Callable[..., PluginHost]:
    def start(script: str = "", version: str = "2.30.7", timeout_s: float = HOUR_S) -> PluginHost:
        return PluginHost(
            scripted,
            nccl_version=version,
            scale=SCALE,
            environment={"SCRIPTED_TUNER": script},
            timeout_s=timeout_s,
        )

    return start


def test_the_native_parts_are_installed() -> None:
    assert os.access(host_path(), os.X_OK)
    assert tuner_path().stat().st_size > 0


@pytest.mark.parametrize(
    ("version", "interface"),
    [("2.21.5", 2), ("2.23.4", 3), ("2.27.7", 4), ("2.28.9", 5), ("2.31.2", 6), ("2.32.6", 7)],
)
def test_our_plugin_follows_its_file_under_every_version(
    tmp_path: Path, version: str, interface: int
) -> None:
    conf = tmp_path / "tuner.conf"
    conf.write_text(
        "allreduce,1024,65536,tree,ll,8,4,32\nallreduce,65537,1048576,ring,simple,-1,4,32\n"
    )
    environment = {"NCCL_TUNER_CONFIG_FILE": str(conf), "NCCLTUNE_CONFIG": None}
    with PluginHost(
        tuner_path(), nccl_version=version, scale=SCALE, environment=environment
    ) as host:
        assert host.init.interface == interface
        assert host.init.plugin == "nccltune"
        assert host.init.constants_changed == []
        assert any(str(conf) in line.text for line in host.init.log)
        inside = host.decide(Collective.ALLREDUCE, 65536)
        assert inside.decided == TunerAnswer(Algorithm.TREE, Protocol.LL, 8, None)
        assert inside.selected == AlgorithmProtocol(Algorithm.TREE, Protocol.LL)
        next_rule = host.decide(Collective.ALLREDUCE, 65537)
        assert next_rule.decided == TunerAnswer(Algorithm.RING, Protocol.SIMPLE, None, None)
        for collective, size in (
            (Collective.ALLREDUCE, 1023),
            (Collective.ALLREDUCE, 1048577),
            (Collective.REDUCE, 4096),
        ):
            assert host.decide(collective, size).decided == "default"


def test_the_call_reaches_the_plugin(start: Callable[..., PluginHost]) -> None:
    with start() as host:
        decision = host.decide(Collective.ALLGATHER, 1 << 40, pipe_ops=3, registered=True, log=True)
        assert [line.text for line in decision.log] == [
            "coll v6 context=1 func=2 bytes=1099511627776 pipe=3 table=7x3 reg=1 channels=0"
        ]
        assert host.decide(Collective.ALLGATHER, 1).log == []


def test_errors_of_the_plugin_fail_the_call_and_not_the_host(
    start: Callable[..., PluginHost],
) -> None:
    with start("coll=5") as host:
        for _ in range(2):
            decision = host.decide(Collective.ALLREDUCE, 4096)
            assert decision.decided is None
            assert decision.error is not None
            assert decision.error.kind == "plugin_error"
            assert "ncclInvalidUsage" in decision.error.text


def test_a_failing_init_is_an_error_with_its_reason(start: Callable[..., PluginHost]) -> None:
    with pytest.raises(LaunchError, match=r"init returned 3 \(ncclInternalError\)"):
        start("init=3").__enter__()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("crash_init", "crashed.*SIGSEGV"),
        ("crash", "crashed.*SIGSEGV.*broadcast of 64 KiB"),
        ("exit=0", "status 0"),
        ("sleep=600", "no answer within 3 s .*broadcast of 64 KiB"),
    ],
)
def test_a_crash_an_end_and_a_hang_name_the_plugin_and_the_call(
    start: Callable[..., PluginHost], scripted: Path, script: str, words: str
) -> None:
    limit_s = 3 if script.startswith("sleep") else HOUR_S
    with (
        pytest.raises(LaunchError, match=words) as caught,
        start(script, timeout_s=limit_s) as host,
    ):
        host.decide(Collective.BROADCAST, 65536)
    assert str(scripted) in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("content", [None, b"", b"not a shared object\n"])
def test_what_cannot_be_loaded_is_a_platform_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "libnccl-tuner-x.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlatformError, match="cannot be opened") as caught:
        PluginHost(path, nccl_version="2.28.9", scale=SCALE).__enter__()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("version", "scale", "problem"),
    [
        ("2.20.5", SCALE, "before 2.21"),
        ("banana", SCALE, "no version like"),
        ("2.28.9", Scale(1, 1), "with one rank"),
        ("2.28.9", Scale(8, 4), "fewer ranks than nodes"),
    ],
)
def test_what_no_nccl_would_ask_is_an_input_error(
    scripted: Path, version: str, scale: Scale, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        PluginHost(scripted, nccl_version=version, scale=scale).__enter__()


def test_a_bad_request_is_an_input_error_and_the_host_goes_on(
    start: Callable[..., PluginHost],
) -> None:
    with start(version="2.22.3") as host:
        with pytest.raises(InputError, match="no pat/simple"):
            host.decide(Collective.ALLGATHER, 8, costs={(Algorithm.PAT, Protocol.SIMPLE): 1.0})
        with pytest.raises(InputError, match="no collective"):
            host.decide(Collective.ALLTOALL, 8)
        assert host.decide(Collective.ALLGATHER, 8).decided == "default"


class TestProgram:
    """The program by itself: its streams and exit statuses."""

    @staticmethod
    def run(
        *arguments: str, text: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return completed(
            [str(host_path()), *arguments], input=text, env={**os.environ, **environment}
        )

    def test_help(self) -> None:
        done = self.run("--help")
        assert done.returncode == 0
        assert done.stdout.startswith("nccltune-host: simulates NCCL's side")
        assert done.stderr == ""

    def test_usage(self) -> None:
        done = self.run("--tuner", "x.so")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: --nccl is missing\nhint:")

    def test_symbols(self) -> None:
        done = self.run("--list-symbols", f"--tuner={tuner_path()}")
        assert done.returncode == 0
        assert json.loads(done.stdout)["exported"] == [7, 6, 5, 4, 3, 2]

    def test_conversation(self, scripted: Path) -> None:
        arguments = (f"--tuner={scripted}", "--nccl=2.28", "--nodes=1", "--ranks=8")
        lines = [
            '{"op":"decide","collective":"allreduce","bytes":1}',
            "nonsense",
            '{"op":"quit"}',
            '{"op":"decide","collective":"allreduce","bytes":1}',
        ]
        done = self.run(*arguments, text="\n".join(lines), SCRIPTED_TUNER="print finalize=1")
        assert done.returncode == 0
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [answer["op"] for answer in answers] == ["init", "decide", None, "quit"]
        assert [answer["ok"] for answer in answers] == [True, True, False, False]
        assert "finalize returned 1" in answers[3]["error"]["text"]
        assert done.stderr.splitlines().count('{"op":"noise"}') == 1

    def test_verbose_shows_the_log(self, scripted: Path) -> None:
        arguments = (f"--tuner={scripted}", "--nccl=2.28", "--nodes=1", "--ranks=8")
        quiet = self.run(*arguments)
        assert (quiet.returncode, quiet.stderr) == (0, "")
        loud = self.run(*arguments, "--verbose")
        assert loud.stdout == quiet.stdout
        assert "plugin INFO: init v5 ranks=8 nodes=1\n" in loud.stderr
