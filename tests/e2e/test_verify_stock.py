# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify STUDY -- COMMAND`: the deployed file, seen through NCCL's log."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nccltune.app.env import rules_deployment
from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules
from nccltune.measure.experiments.ab.runs import TrialFiles
from nccltune.model.choice import DEFAULT, TUNED_RUN
from nccltune.model.rule import RuleState
from nccltune.model.sample import Purpose, Sample
from nccltune.native import tuner_path
from nccltune.prove.job import JobProof
from nccltune.prove.program import ProgramRound
from nccltune.prove.result import Proof
from nccltune.prove.stock import StockProof
from nccltune.study.files import Study
from tests.e2e.command_line import launcher_here, nccltune
from tests.unit.workload.test_recorder import communicator, record, row

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(Path(__file__).with_name("stock_program.py"))]
CONFIG = """\
# nccltune: schema=1
allreduce,2048,32768,tree,ll,-1,4,4
allreduce,32769,131072,tree,simple,-1,4,4
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study")
    made.platform_path.write_text('{"name": "study"}')
    made.config_path.write_text(CONFIG)
    return made


def verify(
    study: Study, *program: str, code: int = 0, options: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = {**kept, "PYTHONPATH": paths, **more}
    words = ("verify", "study", *options, "--", *program)
    return nccltune(*words, cwd=study.path.parent, code=code, env=env)


def kept(study: Study) -> StockProof:
    return study.read_json(study.path / "deployed.json", StockProof)


def test_the_deployed_file_is_loaded_and_followed(study: Study) -> None:
    done = verify(study, *PROGRAM)
    hash_ = config_hash(CONFIG.encode())
    assert f"plugin     loaded, content {hash_}: 2 of 2 rules for 4 nodes, 4 ranks" in done.stdout
    assert "rules      followed at 3 of 3 points; left alone as before: 3" in done.stdout
    assert "Times are of the last round" in done.stdout
    # The output of the first round is passed on, to standard error.
    assert done.stderr.count("# Collective test starting: all_reduce_perf") == 2
    proof = kept(study)
    assert proof.problems == []
    assert (proof.before.tuner, proof.after.tuner) == (None, "nccltune")
    assert proof.after.config_hashes == [hash_] == [proof.config_hash]
    found = {point.bytes: point for point in proof.points}
    assert found[4096].rule == "tree/ll"
    assert (found[4096].before, found[4096].after) == ("ring/simple/4", "tree/ll/4")
    assert (found[4096].before_us, found[4096].after_us) == (20.0, 15.0)
    assert found[1 << 20].verdict == "left alone"


def test_json_is_the_whole_result(study: Study) -> None:
    document = json.loads(verify(study, *PROGRAM, options=("--json",)).stdout)
    assert document["problems"] == []
    assert len(document["points"]) == 6
    assert document["unmeasured"] is None
    assert [item["verdict"] for item in document["proof"]["rules"]] == ["holds", "holds"]


def test_settings_of_ours_in_the_shell_are_not_in_the_run_without(study: Study) -> None:
    more = {"NCCL_TUNER_PLUGIN": str(tuner_path()), "NCCLTUNE_CONFIG": "/no/such.conf"}
    verify(study, *PROGRAM, options=("--rounds", "1"), **more)
    assert kept(study).before.config_hashes == []
    assert kept(study).problems == []


def test_a_plugin_that_is_not_loaded_is_a_finding_with_a_way_out(study: Study) -> None:
    done = verify(study, *PROGRAM, "--ignore-plugin", code=1)
    assert "finding    NCCL did not load our plugin with this configuration" in done.stdout
    assert "-x NCCL_TUNER_PLUGIN" in done.stdout
    assert "at 3 of 3 points NCCL did not run the choice of the rule" in done.stdout
    assert "not measured: the two runs do not differ by these rules" in done.stdout
    assert done.stderr.count("# Collective test starting") == 2
    assert study.config_path.read_text() == CONFIG
    assert not (study.path / "proof.json").exists()
    assert "the rule has tree/ll" in done.stdout


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ([*PROGRAM, "--no-log"], 2, "left no log of NCCL's"),
        ([*PROGRAM, "--fail"], 4, "the command ended with status 3 without the plugin"),
        (["no-such-program"], 2, "no-such-program: cannot be started"),
    ],
)
def test_a_command_that_cannot_tell_is_an_error(
    study: Study, program: list[str], code: int, words: str
) -> None:
    assert words in verify(study, *program, code=code).stderr
    assert not (study.path / "deployed.json").exists()


@pytest.fixture(params=["openmpi", "hydra"])
def launcher(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that start four processes of a COMMAND with a launcher that is here."""
    return "--launcher", launcher_here(request.param), "--gpus", "4"


def test_a_launcher_hands_the_settings_of_both_runs_to_its_processes(
    study: Study, launcher: tuple[str, ...]
) -> None:
    done = verify(study, *PROGRAM, options=(*launcher, "--rounds", "1"))
    assert "2 of 2 rules for 4 nodes, 4 ranks" in done.stdout
    assert "run        without the plugin: mp" in done.stderr
    # A value on the command line would be seen by everybody on the machine.
    assert str(tuner_path()) not in done.stderr
    proof = kept(study)
    assert proof.problems == []
    assert (proof.before.tuner, proof.after.tuner) == (None, "nccltune")
    assert proof.points[1].after_us == 15.0, "the table is read behind the launcher's tags"
    assert not list(study.path.glob(".nccltune-verify-*"))


def test_processes_that_are_each_alone_are_a_finding(
    study: Study, launcher: tuple[str, ...]
) -> None:
    done = verify(study, *PROGRAM, "--alone", options=launcher, code=1)
    assert "4 processes each ran a test of their own" in done.stdout


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ([*PROGRAM, "--no-log"], 2, "Its first node writes the log to"),
        ([*PROGRAM, "--fail"], 4, "ended with status 3 without the plugin"),
        ([*PROGRAM, "-g", "1"], 2, "program has -g, which follows from processes = 'per-gpu'"),
    ],
)
def test_a_command_under_a_launcher_that_cannot_tell_is_an_error(
    study: Study, launcher: tuple[str, ...], program: list[str], code: int, words: str
) -> None:
    assert words in verify(study, *program, options=launcher, code=code).stderr
    assert not (study.path / "deployed.json").exists()


def test_without_a_launcher_one_process_has_all_gpus(study: Study) -> None:
    done = verify(study, *PROGRAM, options=("--launcher", "local", "--gpus", "4"), code=1)
    assert f"run        without the plugin: {' '.join(PROGRAM)} -g 4\n" in done.stderr
    # The program prints that it has four.
    assert "4 on alpha; 1 were promised" in done.stdout


def proof_of(study: Study) -> Proof:
    return study.read_json(study.path / "proof.json", Proof)


def rounds_of(study: Study) -> list[ProgramRound]:
    return list(study.read_lines(study.path / "verify-rounds.jsonl", ProgramRound))


def timings(study: Study) -> list[Sample]:
    return list(study.samples())


def test_faster_rules_are_proven_and_slower_ones_removed(study: Study) -> None:
    done = verify(study, *PROGRAM, "--slow", "tree/simple")
    assert "verify     1 of 2 rules hold" in done.stdout
    # A slower rule needs 12 rounds: one bad moment must not remove a good rule.
    assert done.stderr.count("the plugin; at most ") == 22
    assert "run        24 of at most 24: with" in done.stderr or "24: without" in done.stderr
    proof = proof_of(study)
    assert [item.rule.choice.label for item in proof.rules] == ["tree/ll"]
    (dropped,) = proof.dropped
    assert (dropped.rule.choice.label, dropped.narrowed) == ("tree/simple", None)
    conf = study.config_path.read_text()
    assert "# proven: 1.32x faster than the default (95 % CI 1.32-1.32), measured by verify" in conf
    assert "# removed by nccltune verify (slower: 0.80x at 64 KiB (0.80-0.80)" in conf
    assert proof.config_hash == config_hash(conf.encode())
    assert (study.path / "tuner.conf.before-verify").read_text() == CONFIG
    sizes = {item.bytes: item for group in proof.groups for item in group.sizes}
    assert (sizes[4096].default_us, sizes[4096].ran) == (
        pytest.approx((20 * 21) ** 0.5),
        "tree/ll/4",
    )
    assert sizes[1 << 20].verdict == "left alone"
    # With --check a rule that was removed is a finding; what was measured counts again.
    study.config_path.write_text(CONFIG)
    verify(study, *PROGRAM, "--slow", "tree/simple", options=("--check",), code=1)
    assert len(rounds_of(study)) == 13
    # Rounds with other rules do not count for new ones.
    study.config_path.write_text("allreduce,2048,32768,ring/ll,-1,4,4\n".replace("/", ","))
    verify(study, *PROGRAM, "--slow", "tree/simple")
    assert len(rounds_of(study)) == 17
    assert proof_of(study).holding == 1


def test_the_choice_of_the_release_before_is_proven_by_the_command_that_ab_prints(
    tmp_path: Path,
) -> None:
    old, new = (tmp_path / name for name in ("old.so", "new.so"))
    for path in (old, new):
        path.write_bytes(b"\x7fELF")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    both = ("--nccl", str(old), "--nccl", str(new), "-o", "s", "--rounds", "4")
    done = nccltune("ab", *both, "--", *PROGRAM, "--old", str(old), cwd=tmp_path, env=env, code=1)
    found = re.search(r"prove the rules .*?: LD_PRELOAD=(\S+) nccltune (.*)", done.stderr)
    assert found is not None
    (config,) = tmp_path.glob("s-nccl-*/tuner.conf")
    assert "# candidate:" in config.read_text()
    env["LD_PRELOAD"] = found[1]
    proven = nccltune(*shlex.split(found[2]), cwd=tmp_path, env=env)
    assert "followed at 6 of 6 points" in proven.stdout
    assert "# proven: 1.32x faster" in config.read_text()
    (rule,) = read_rules(config, strict=True).rules
    assert (rule.rule.choice.label, rule.state) == ("tree/ll", RuleState.PROVEN)


def test_both_starts_of_a_round_are_kept_and_the_order_alternates(study: Study) -> None:
    verify(study, *PROGRAM)
    rounds = rounds_of(study)
    assert [item.round for item in rounds] == [0, 1, 2, 3]
    assert all(item.program == PROGRAM and (item.nodes, item.ranks) == (4, 4) for item in rounds)
    found = timings(study)
    assert len(found) == 4 * 2 * 6 * 2
    order = list(dict.fromkeys((item.round, item.choice) for item in found))
    assert order == [
        (0, DEFAULT), (0, TUNED_RUN), (1, TUNED_RUN), (1, DEFAULT),
        (2, DEFAULT), (2, TUNED_RUN), (3, TUNED_RUN), (3, DEFAULT),
    ]  # fmt: skip
    assert len({item.source.process for item in found}) == 8
    assert {item.source.purpose for item in found} == {Purpose.VERIFY}
    # They are no measurements from which rules are found.
    assert "it has no samples" in nccltune("tune", "study", cwd=study.path.parent, code=2).stderr


def test_an_interrupted_run_keeps_all_and_goes_on(study: Study, tmp_path: Path) -> None:
    more = ("--stop-at", "6", str(tmp_path / "count"))
    done = verify(study, *PROGRAM, *more, code=130)
    assert "stopped; the timings of 2 rounds are kept in study" in done.stderr
    assert "resume:  nccltune verify study -- " in done.stderr
    # Of the start that was interrupted, the rows that it had printed.
    assert len(timings(study)) in (5 * 12, 6 * 12)
    assert study.config_path.read_text() == CONFIG
    verify(study, *PROGRAM, *more)
    # The third round was not whole: its two starts would not be close in time.
    assert [item.round for item in rounds_of(study)] == [0, 1, 3, 4]
    assert proof_of(study).holding == 2
    assert (proof_of(study).points, proof_of(study).known) == (48, 48)


def test_a_start_that_fails_keeps_the_rounds_before_it(study: Study, tmp_path: Path) -> None:
    count = tmp_path / "count"
    fails = (
        f'echo >> {count}; [ $(wc -l < {count}) = 6 ] && {{ echo node lost; exit 3; }}; exec "$@"'
    )
    program = ["/bin/sh", "-c", fails, "sh", *PROGRAM]
    done = verify(study, *program, code=4)
    assert "stopped; the timings of 2 rounds are kept in study" in done.stderr
    assert "ended with status 3 with the plugin" in done.stderr
    assert "it ended well in 5 starts before; the same command goes on" in done.stderr
    assert "  node lost" in done.stderr
    verify(study, *program)
    assert [item.round for item in rounds_of(study)] == [0, 1, 3, 4]
    assert proof_of(study).holding == 2


def test_wrong_results_remove_a_rule_at_once(study: Study) -> None:
    done = verify(study, *PROGRAM, "--wrong", "tree/simple")
    assert "removed by nccltune verify (wrong results at 64 KiB" in study.config_path.read_text()
    assert "1 of 2 rules hold" in done.stdout
    assert proof_of(study).rules[0].rule.choice.label == "tree/ll"


JOB = (*PROGRAM, "--job")


def test_a_job_is_proven_as_a_whole(study: Study) -> None:
    done = verify(study, *JOB, "1.05", options=("--check",))
    text = " ".join(done.stdout.split())
    assert re.search(r"proven the job is faster with the rules: 1\.050x as fast", text)
    assert "in 3 pairs of starts in alternating order" in text
    assert "tokens/s (tps): 7007 without the rules, 7357 with them" in text
    assert "the first 2 of 10 values of a start are warm-up" in text
    proof = study.read_json(study.path / "job-proof.json", JobProof)
    assert (proof.verdict, proof.pairs, proof.known) == ("proven", 3, 0)
    assert proof.gain_low == pytest.approx(1.05, rel=0.001)
    # The rules keep their states.
    assert study.config_path.read_text() == CONFIG
    assert not (study.path / "proof.json").exists()
    runs = [line.side for line in TrialFiles(study).lines.read()]
    assert len(runs) == 6
    assert runs[:2] != runs[2:4] or runs[2:4] != runs[4:]

    # The same command measures nothing twice, and other rules are another test.
    again = verify(study, *JOB, "1.05", options=("--json",))
    assert json.loads(again.stdout)["job"]["known"] == 3
    assert len(TrialFiles(study).lines.read()) == 6
    study.config_path.write_text(CONFIG.splitlines(keepends=True)[1])
    document = json.loads(verify(study, *JOB, "1.05", options=("--json",)).stdout)
    assert (document["job"]["known"], document["proof"]) == (0, None)


@pytest.mark.parametrize(
    ("sent", "environment", "words"),
    [
        ([(64, 5)], {}, "5 calls in each start, the same in both"),
        ([(64, 7)], {}, "5 calls without the rules, 7 with them, of the same sizes"),
        (
            [(64, 5), (128, 1), (256, 1)],
            {},
            "the job is not the same in both starts: all-reduce of 128 B only with the rules, and "
            "1 other size in one of them",
        ),
        ([(64, 5)], {"NCCL_PROFILER_PLUGIN": "other"}, ""),
        (None, {}, ""),
    ],
)
def test_whether_both_starts_of_a_job_sent_the_same(
    study: Study,
    tmp_path: Path,
    sent: list[tuple[int, int]] | None,
    environment: dict[str, str],
    words: str,
) -> None:
    for which, calls in (("without", [(64, 5)]), ("with", sent or [])):
        timed = {"total_ns": 5000, "bins": [[3, 5]]}
        tasks = [row("AllReduce", *call, timed=timed) for call in calls]
        text = record(communicator([row("AllReduce", *call) for call in calls], tasks))
        (tmp_path / f"{which}.json").write_text(text)
    copy = f'cp {tmp_path}/"${{NCCLTUNE_RECORD##*/}}".json "$NCCLTUNE_RECORD" && echo >> starts;'
    script = f'[ -z "$NCCLTUNE_RECORD" ] || {{ {copy} }} ; exec "$@"'
    shell = ("sh", "-c", script, "sh")
    done = verify(study, *shell, *JOB, "1.05", **environment)
    proof = study.read_json(study.path / "job-proof.json", JobProof)
    assert (proof.sent, proof.sent_differs) == (words, "not the same" in words)
    assert ("sent  " in done.stdout) is bool(words)
    assert words in " ".join(done.stdout.split())
    assert ("without, waits included: 1.000x as fast" in proof.in_nccl) is bool(words)
    assert ("in NCCL  " in done.stdout) is bool(words)
    # The starts that are timed record nothing.
    starts = tmp_path / "starts"
    assert len(starts.read_text().splitlines() if starts.exists() else ()) == (
        0 if environment else 2
    )


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        ("0.95", "no the job is slower with the rules: 0.950x"),
        ("1", "no the rules gain less than 0.5 % of the job: 1.000x"),
    ],
)
def test_a_job_that_is_not_faster(study: Study, gain: str, words: str) -> None:
    done = verify(study, *JOB, gain, options=("--check",), code=1)
    assert words in " ".join(done.stdout.split())
    assert study.config_path.read_text() == CONFIG
    is_slower = gain == "0.95"
    assert (done.stdout.splitlines()[-1] == "for this job: do not deploy") is is_slower
    verify(study, *JOB, gain, code=is_slower)
    # The proof is of this content of the file.
    for is_same in (True, False):
        found = rules_deployment(study.path).warnings
        assert any("a job is slower" in words for words in found) is (is_slower and is_same)
        study.config_path.write_text(f"{CONFIG}# other\n")


def test_an_interrupted_job_goes_on(study: Study, tmp_path: Path) -> None:
    stop = ("--stop-at", "5", str(tmp_path / "starts"))
    done = verify(study, *JOB, "1.05", *stop, code=130)
    assert "the speeds of 1 pair of starts are kept" in done.stderr
    again = verify(study, *JOB, "1.05", *stop, options=("--json",))
    document = json.loads(again.stdout)
    assert (document["job"]["known"], document["job"]["pairs"]) == (1, 3)
    # One of the twelve pairs is known: two starts with NCCL's log, and 22 at most.
    assert re.findall(r"run        (\d+ of at most \d+)", again.stderr) == [
        f"{number} of at most 24" for number in range(3, 7)
    ]


def test_half_a_pair_is_completed(study: Study, tmp_path: Path) -> None:
    stop = ("--stop-at", "6", str(tmp_path / "starts"))
    verify(study, *JOB, "1.05", *stop, code=130)
    again = verify(study, *JOB, "1.05", *stop)
    assert "run        3 of at most 23" in again.stderr
    lines = TrialFiles(study).lines.read()
    assert (len(lines), len({line.round for line in lines})) == (6, 3)


def test_a_spent_budget_advises_a_larger_one(study: Study) -> None:
    done = verify(study, *JOB, "1.05", options=("--budget", "0.001"))
    assert "not sure   needs at least 3 pairs of starts, has 0" in done.stdout
    assert "next: the budget is spent: the same command with a larger --budget" in done.stderr


def test_what_is_read_of_a_job(study: Study) -> None:
    metric = ("--metric", r"step: +\d+ +loss: ([0-9.]+)", "--json", "--rounds", "4")
    for anew in ((), ("--anew",)):
        job = json.loads(verify(study, *JOB, "2", options=(*metric, *anew)).stdout)["job"]
        assert (job["metric"], job["default"], job["verdict"]) == (metric[1], 8.1, "not sure")
        assert (job["pairs"], job["known"], job["coarse"]) == (3, 0, True)
    assert len(TrialFiles(study).lines.read()) == 12
    done = verify(study, *JOB, "2", options=("--metric", "speed ([0-9]+)"), code=2)
    assert "printed nothing that 'speed ([0-9]+)' matches" in done.stderr
    assert "correct --metric; the last lines with a number are: [rank0]:step: 7 " in done.stderr
    assert "run        with the plugin" not in done.stderr
    assert "resume" not in done.stderr
    done = verify(study, *JOB, "2", options=("--metric", "speed"), code=2)
    assert "--metric: 'speed' has no group" in done.stderr
    done = verify(study, *PROGRAM, "--no-table", options=("--rounds", "3"))
    assert "read       wall time: " in done.stdout
    assert "name it with --metric" in " ".join(done.stdout.split())


def test_one_failed_start_with_the_rules_is_repeated(study: Study, tmp_path: Path) -> None:
    once = (*JOB, "1.05", "--fail-at", "2", str(tmp_path / "once"))
    done = " ".join(verify(study, *once).stdout.split())
    assert "proven the job is faster with the rules: 1.050x as fast" in done
    assert "in 3 pairs of starts in alternating order; one start with the rules failed" in done
    good = [line for line in TrialFiles(study).lines.read() if not line.error]
    # No start is repeated but the one that failed.
    assert len(good) == 6
    twice = (*JOB, "1.05", "--fail-at", "2,3", str(tmp_path / "twice"))
    for options in ((), (), ("--anew",)):
        ended = verify(study, *twice, options=options, code=int(not options))
        if not options:
            assert (
                "no         the job failed twice with the rules: ended with status 3"
                in ended.stdout
            )
            assert "pairs" not in ended.stdout
            assert ended.stdout.splitlines()[-1] == "for this job: do not deploy"
            assert "the same command with --anew" in ended.stderr


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("allreduce,0,1048576,tree,ll,-1,8,8", "no rule applies at this scale (4 nodes, 4 ranks)"),
        ("allgather,0,1048576,ring,ll,-1,4,4", "no rule applies to what the job calls"),
    ],
)
def test_a_job_that_no_rule_reaches_is_not_measured(study: Study, rule: str, why: str) -> None:
    study.config_path.write_text(f"# nccltune: schema=1\n{rule}\n")
    done = verify(study, *JOB, "1.05", options=("--check",), code=1)
    assert f"gains      not measured: {why}" in done.stdout
    assert not TrialFiles(study).lines.read()
    assert not (study.path / "job-proof.json").exists()


def test_two_rounds_are_too_few_for_a_job(study: Study) -> None:
    done = verify(study, *JOB, "2", options=("--rounds", "2"))
    assert "gains      not measured: a job needs at least 3 rounds" in done.stdout
    assert not TrialFiles(study).lines.read()


def test_a_rule_that_the_command_does_not_reach_says_what_to_run(study: Study) -> None:
    far = "allgather,4194304,67108864,ring,ll128,-1,4,4\nallreduce,2048,4096,ring,ll,-1,8,8\n"
    study.config_path.write_text(CONFIG + far)
    done = verify(study, *PROGRAM, options=("--check",), code=1)
    out = " ".join(done.stdout.split())
    assert "2 of 4 rules hold" in out
    assert "run all_gather_perf -b 4M -e 64M -f 2" in out
    assert "for another scale; this run has 4 nodes, 4 ranks" in out
    assert study.config_path.read_text().endswith(far)


def test_no_rule_in_reach_needs_one_round(study: Study) -> None:
    study.config_path.write_text("allgather,4194304,67108864,ring,ll128,-1,4,4\n")
    done = verify(study, *PROGRAM)
    assert len(rounds_of(study)) == 1
    assert "run all_gather_perf -b 4M -e 64M -f 2" in " ".join(done.stdout.split())
    assert not (study.path / "proof.json").exists()


def test_fewer_than_four_rounds_decide_nothing_and_count_later(study: Study) -> None:
    done = verify(study, *PROGRAM, options=("--rounds", "2"))
    assert "not decided" in done.stdout
    assert study.config_path.read_text() == CONFIG
    assert not (study.path / "proof.json").exists()
    verify(study, *PROGRAM, options=("--budget", "1000"))
    assert len(rounds_of(study)) == 4
    assert "# proven: " in study.config_path.read_text()
    # Another program, and --anew, do not use them.
    verify(study, *PROGRAM, options=("--anew", "--rounds", "1"))
    verify(study, *PROGRAM, "-x", options=("--budget", "0.01"))
    assert len(rounds_of(study)) == 6
    assert proof_of(study).holding == 2


def test_the_dry_run_starts_nothing_and_says_how_often(study: Study) -> None:
    done = verify(study, *PROGRAM, options=("--dry-run",))
    assert "would start 24 times at most, without and with the plugin in 12 rounds" in done.stderr
    done = verify(study, *PROGRAM, options=("--dry-run", "--rounds", "5", "--json"))
    document = json.loads(done.stdout)
    assert (document["starts"], document["rounds"], document["program"]) == (10, 5, PROGRAM)
    assert not (study.path / "samples.jsonl").exists()
