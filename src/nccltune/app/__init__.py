# SPDX-License-Identifier: Apache-2.0
"""Use cases: a function for each verb of the command line, without a terminal.

These functions are also the Python API (docs/reference). Verbs print their results.

study.py                open a study with its samples sorted
auto.py                 sweep, analyze, tune, verify and report, one after the other
sweep.py                measure into a study
importing.py            read measurements of any known format into a study
analyze.py              findings of a study, computed or stored
tune.py                 rules of a study, and its configuration
verify.py               prove the configuration of a study
check.py                whether deployed rules still rest on this platform and are faster
check_model.py          what NCCL's own model chooses otherwise in another release
verify_program.py       run a stock program without and with the deployed rules, in rounds
program_run.py          one run of that program, with its log and timings
report.py               the report of a study, as data and as a page
reproduce.py            the command that measures a study again
env.py                  the settings that deploy rules, plugins and libraries
explain.py              load a tuner plugin and list its decisions
status.py               what running jobs have loaded, and whose settings win
doctor.py               check this node, or collected files of many
examiner.py             the doctor's checks while the bench starts
ab.py                   A/B-test settings, or two libraries of NCCL
ab_releases.py          what two releases of NCCL choose, and rules that keep the old choice
predict.py              NCCL's choices on a machine by its own cost model
nccl_model.py           put what NCCL's own cost model says beside a measurement
compare.py              compare two measurements size by size, or the runs of a fleet
compare_reference.py    place one measurement among published systems
lint.py                 recognise a file or a text by its content, and check it
demo.py                 analyze, tune, verify and report a copy of a recorded study
topo_show.py            a machine as a graph with NCCL's paths
topo_what_if.py         the bandwidth limit of a platform now, and after changes
topo_convert.py         write a topology file for NCCL
workload.py             what a job sends, from recordings of it
net_stats.py            traffic of the network plugin's connections
sendrecv_sweep.py       find the size from which copy engines are faster for send/recv
job_levers.py           what besides rules would pay for a job
job.py                  build a job from the command line
launch.py               render a job, run it, store its results
bench_launch.py         build the launch of the bench from the command line
measuring.py            common steps of all measurements: study, progress, interruption
"""
