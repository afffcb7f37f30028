# SPDX-License-Identifier: Apache-2.0
"""Read NCCL's log (NCCL_DEBUG=INFO, NCCL 2.18 to 2.32).

There is one reader: `lines.find_log_line` finds a line and `messages.read_message` parses it. A
view collects facts from the parsed messages. The views are `run_settings` and `run` here, and
`doctor.evidence.parsers.nccl_lines` for the doctor.

lines.py         find log lines among other text
messages.py      parse one message
graph.py         messages of the topology and graphs
transports.py    messages of transports, NICs, NVLink SHARP, bootstrap
run_settings.py  view: version, scale, settings and choices of a process
shared_settings.py  view: settings that ranks have to share, and do not
run.py           view: hardware, graphs and connections of a run
calls.py         the calls of a job, one line for each call and rank
alarms.py        view: signs of a broken platform
diagnostics.py   NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS and ncclras
"""
