# SPDX-License-Identifier: Apache-2.0
"""The names of a study's files, each with its content.

Some records of single experiments are not listed here: the module of the experiment names them.
"""

PLATFORM = "platform.json"
"""The platform that was measured."""
SAMPLES = "samples.jsonl"
"""Every timing, append only."""
IMPORTS = "imports.jsonl"
"""The files that were imported, and the number of their unreadable lines."""
TABLES = "tables.jsonl"
"""NCCL's predicted costs."""
SWEEP = "sweep.json"
"""How the last sweep ended."""
FINDINGS = "findings.json"
"""The findings of `analyze`."""
TUNING = "tuning.json"
"""The rules with their evidence."""
TUNER_CONF = "tuner.conf"
"""The rules in the format of the tuner plugin."""
PROOF = "proof.json"
"""The rules proven by `verify`."""
VERIFY_ROUNDS = "verify-rounds.jsonl"
"""The rounds in which `verify` ran a program without and with the rules."""
JOB_PROOF = "job-proof.json"
"""Whether a job is faster with the rules as a whole, by `verify` with its command."""
CHECK_DROPS = "check.jsonl"
"""The rules that `check` removed, with reason, date and NCCL."""
DEPLOYED = "deployed.json"
"""Whether a stock program runs with the rules, by NCCL's own log."""
REPORT = "report.html"
"""The report as a page."""
DOCTOR = "doctor.json"
"""The doctor's findings about the platform."""
CALIBRATION = "calibration.json"
"""The bandwidths that the platform's links reach, for `topo what-if`."""
P2P_CONF = "p2p.conf"
"""Settings of NCCL's send/recv that `sweep --p2p` of 0.1 recommended."""
SENDRECV_CONF = "sendrecv.conf"
"""Settings of the send/recv library that its experiments recommend."""
AB_CONF = "try.conf"
"""Settings that `ab` found worth keeping."""
AB_RESULT = "try.json"
"""The verdict of the last A/B test."""
AB_RUNS = "try.jsonl"
"""Processes of A/B tests."""
ALL = frozenset(
    {PLATFORM, SAMPLES, IMPORTS, TABLES, SWEEP, FINDINGS, TUNING, TUNER_CONF, PROOF, DEPLOYED}
    | {VERIFY_ROUNDS, JOB_PROOF, CHECK_DROPS}
    | {REPORT, DOCTOR, CALIBRATION, P2P_CONF, SENDRECV_CONF, AB_CONF, AB_RESULT, AB_RUNS}
)
"""All names above."""
