# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import msgspec
import pytest

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import PlatformError
from nccltune.native import AlgorithmProtocol, PluginDecision, TableChange, TunerAnswer
from nccltune.native.line_process import LineProcess, NoAnswer, ProcessEnded, ending
from tests.waiting import wait_until

LONG_S = 60.0


def python(code: str) -> LineProcess:
    return LineProcess([sys.executable, "-c", code], dict(os.environ))


def test_lines_are_answered_one_by_one() -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"
    with python(echo) as process:
        for word in (b"a", b"bc"):
            process.send(word)
            assert process.receive(LONG_S) == word * 2
        assert process.finish(LONG_S) == 0


def test_two_lines_that_come_at_once_are_two_answers() -> None:
    with python("print('one'); print('two')") as process:
        assert process.receive(LONG_S) == b"one"
        assert process.receive(LONG_S) == b"two"


def test_an_end_without_answer_is_told_with_the_last_words() -> None:
    code = "import sys; sys.stderr.write('x' * 200000 + 'last words'); sys.exit(7)"
    with python(code) as process, pytest.raises(ProcessEnded) as caught:
        process.receive(LONG_S)
    assert caught.value.status == 7
    assert caught.value.stderr.endswith("last words")
    assert len(caught.value.stderr) <= 64 * 1024


def test_a_signal_is_told() -> None:
    with (
        python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)") as process,
        pytest.raises(ProcessEnded, match="SIGSEGV"),
    ):
        process.receive(LONG_S)


def test_a_process_that_does_not_answer_is_killed() -> None:
    with python("import time; time.sleep(600)") as process:
        with pytest.raises(NoAnswer):
            process.receive(0.2)
        with pytest.raises(ProcessEnded, match="SIGKILL"):
            process.receive(LONG_S)


def test_a_process_that_does_not_end_is_killed() -> None:
    with python("import time; print('up', flush=True); time.sleep(600)") as process:
        assert process.receive(LONG_S) == b"up"
        assert process.finish(0.2) is None


def test_sending_to_a_process_that_has_gone_is_found_when_receiving() -> None:
    with python("") as process:
        with pytest.raises(ProcessEnded):
            process.receive(LONG_S)
        process.send(b"x" * 100000)
        with pytest.raises(ProcessEnded):
            process.receive(LONG_S)


def test_leaving_ends_the_process(tmp_path: Path) -> None:
    with python("import os, time; print(os.getpid(), flush=True); time.sleep(600)") as process:
        pid = int(process.receive(LONG_S))
    assert not Path(f"/proc/{pid}").exists()


def test_endings_in_words() -> None:
    assert ending(3) == "ended with status 3"
    assert ending(-11) == "was killed by SIGSEGV"
    assert ending(-200) == "was killed by signal 200"


def test_all_lines_that_are_there_come_together() -> None:
    code = "print('one\\ntwo\\nthree', flush=True); input(); print('four\\nfi', end='', flush=True)"
    with python(code) as process:
        lines = process.receive_all(LONG_S)
        while len(lines) < 3:
            lines += process.receive_all(LONG_S)
        assert lines == [b"one", b"two", b"three"]
        process.send(b"go")
        assert process.receive_all(LONG_S) == [b"four"]


def test_others_share_standard_error_and_end_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (
        "import os, sys, time, pathlib; print('of another', file=sys.stderr, flush=True);"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    with LineProcess(
        [sys.executable, "-c", "import sys; input(); sys.exit('of the first')"],
        dict(os.environ),
        others=[[sys.executable, "-c", other]],
    ) as process:
        pid = int(_text_of(tmp_path / "pid"))
        monkeypatch.setattr("nccltune.native.line_process._LAST_WORDS_S", 0.3)
        process.send(b"end")
        # The other one goes on: it is given a moment, and killed.
        with pytest.raises(ProcessEnded, match="status 1") as caught:
            process.receive(LONG_S)
        assert {"of another", "of the first"} <= set(caught.value.stderr.splitlines())
        assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_cannot_be_started_leaves_no_other_behind(tmp_path: Path) -> None:
    first = (
        "import os, time, pathlib;"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    with pytest.raises(PlatformError):
        LineProcess(
            [sys.executable, "-c", first], dict(os.environ), others=[[str(tmp_path / "none")]]
        )
    if (tmp_path / "pid").exists():
        assert not Path(f"/proc/{_text_of(tmp_path / 'pid')}").exists()


def _text_of(path: Path) -> str:
    return wait_until(lambda: path.exists() and path.read_text(), path)


ANSWER = {
    "op": "decide",
    "ok": True,
    "collective": "allreduce",
    "bytes": 4096,
    "pipe_ops": 1,
    "registered": False,
    "costs": "given",
    "decided": {"algorithm": "tree", "protocol": "ll", "channels": 4, "chunk_bytes": None},
    "selected": {"algorithm": "tree", "protocol": "ll"},
    "channels_requested": 4,
    "table_changed": [{"algorithm": "tree", "protocol": "ll", "before": 12.5, "after": None}],
    "warnings": [{"code": "not_a_number", "text": "..."}],
    "log": [{"level": "WARN", "text": "careful"}],
    "log_dropped": 0,
    "error": None,
}


def decision(**changes: object) -> PluginDecision:
    return msgspec.convert({**ANSWER, **changes}, PluginDecision)


def test_a_decision_is_read_whole() -> None:
    read = decision()
    assert read.collective is Collective.ALLREDUCE
    assert isinstance(read.decided, TunerAnswer)
    assert read.decided.choice == Choice(Algorithm.TREE, Protocol.LL, 4)
    assert read.selected == AlgorithmProtocol(Algorithm.TREE, Protocol.LL)
    assert read.table_changed == [TableChange(Algorithm.TREE, Protocol.LL, 12.5, None)]
    assert read.warnings[0].code == "not_a_number"
    assert read.label == "tree/ll/4"


@pytest.mark.parametrize(
    ("decided", "label"),
    [
        ("default", "default"),
        (None, "fails"),
        ((None, None, 1, None), "-/-/1"),
        ((None, None, None, 4096), "-/-/-/4096"),
        (("nvls_tree", "simple", None, None), "nvls_tree/simple"),
        (("ring", "ll128", 8, 1920), "ring/ll128/8/1920"),
    ],
)
def test_labels(decided: str | tuple[object, ...] | None, label: str) -> None:
    names = ("algorithm", "protocol", "channels", "chunk_bytes")
    as_sent = dict(zip(names, decided, strict=True)) if isinstance(decided, tuple) else decided
    assert decision(decided=as_sent).label == label


def test_a_decision_without_algorithm_is_no_choice() -> None:
    assert TunerAnswer(None, None, 1, None).choice is None


@pytest.mark.parametrize(
    "change", [{"decided": "tuned"}, {"bytes": "4096"}, {"collective": "alltoallx"}]
)
def test_what_is_not_in_the_contract_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decision(**change)
