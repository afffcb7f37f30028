# SPDX-License-Identifier: Apache-2.0
"""Use cases: what each verb does, without a terminal. Also the Python API (docs/reference).

study.py                open a study with its samples sorted
auto.py                 sweep, analyze, tune, verify and report, one after the other
sweep.py                measure into a study
importing.py            read measurements of any known format into a study
analyze.py              findings of a study, computed or stored
tune.py                 rules of a study, and its configuration
verify.py               prove the configuration of a study
verify_program.py       run a stock program without and with the deployed rules
report.py               the report of a study, as data and as a page
reproduce.py            the command that measures a study again
env.py                  the settings that deploy the rules, in the form of a shell or a file
net_env.py              the settings that load the network plugin
sendrecv_env.py         the settings that load the send/recv library
explain.py              what a tuner plugin decides, asked of the plugin
doctor.py               check this node, or collected files of many
examiner.py             the doctor's checks while the bench starts
ab.py                   A/B-test settings
lint.py                 what a file or a text is by its content, and what is wrong with it
demo.py                 the whole loop on a copy of a recorded study
topo_show.py            a machine as a graph with NCCL's paths
topo_what_if.py         the ceiling of a platform now, and after changes
topo_calibrate.py       what links reach, measured or taken from studies
topo_convert.py         a topology file for NCCL
net_stats.py            what the network plugin's connections carry
sendrecv_sweep.py       from which size on copy engines carry send/recv
sendrecv_settings.py    settings of NCCL's own send/recv
sendrecv_fairness.py    the chunk size of copies
sendrecv_conf.py        the lines of sendrecv.conf
settings_experiment.py  what the experiments on send/recv share
nccl_tests_sweep.py     measure with a site's nccl-tests binaries
job.py                  from what a user asks for to a job
launch.py               render a job, run it, keep its table
bench_launch.py         from what a user asks for to what the bench runs on
measuring.py            what all measurements share: study, progress, interruption
"""
