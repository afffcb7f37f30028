# SPDX-License-Identifier: Apache-2.0
"""nccltune: measure what NCCL does on a platform, fix its choices, and prove the fix.

model/        the vocabulary: collective, choice, scale, sample, rule, platform
study/        the files of a study
formats/      formats of other programs
workload/     what a job sends: readers of traces, logs and dumps
native/       the compiled parts, and child processes
analyze/      samples to curves to findings
tune/         rule search, explain, lint of configurations
prove/        the comparison of default and tuned
topology/     hardware, NCCL's paths, flows and ceilings
predict/      NCCL's own cost model: what it chooses on a platform, and why
launch/       jobs for the launchers of clusters
launch_lint/  what a launch command starts
measure/      the bench, the adaptive sweep, experiments
doctor/       rules about nodes, and their evidence
guard/        what deployed rules run into: loaded plugins, settings, who overrides whom
compare/      two measurements size by size, and the runs of a fleet
reference/    one measurement among published systems
report/       the report, as data, page and terminal
app/          use cases: the Python API
cli/          options and screens
examples.py   where the recorded studies are
"""

__version__ = "0.2.0"
