# SPDX-License-Identifier: Apache-2.0
"""Find the compiled parts of nccltune, start child processes, and talk to them.

locate.py         where the compiled parts are installed
child.py          start child processes, wait for them and end them
line_process.py   a child process that reads and answers single lines
plugin_host.py    ask any tuner plugin for its decisions
records.py        answers of the plugin host
processes.py      what /proc shows of processes
net_processes.py  processes that use the network plugin
net_stats.py      counters of the network plugin's connections
"""

from nccltune.native.locate import (
    bench_path,
    host_path,
    net_path,
    recorder_path,
    sendrecv_path,
    tuner_path,
)
from nccltune.native.plugin_host import PluginHost
from nccltune.native.records import (
    AlgorithmProtocol,
    Caution,
    ConstantChange,
    HostInit,
    PluginDecision,
    PluginFailure,
    PluginLogLine,
    TableChange,
    TunerAnswer,
)

__all__ = [
    "AlgorithmProtocol",
    "Caution",
    "ConstantChange",
    "HostInit",
    "PluginDecision",
    "PluginFailure",
    "PluginHost",
    "PluginLogLine",
    "TableChange",
    "TunerAnswer",
    "bench_path",
    "host_path",
    "net_path",
    "recorder_path",
    "sendrecv_path",
    "tuner_path",
]
