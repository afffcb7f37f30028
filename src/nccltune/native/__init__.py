# SPDX-License-Identifier: Apache-2.0
"""The native parts: where they are installed, and what any tuner plugin decides."""

from nccltune.native.locate import (
    bench_path,
    host_path,
    net_path,
    sendrecv_path,
    tuner_path,
)
from nccltune.native.plugin_host import PluginHost, exported_interfaces
from nccltune.native.records import (
    Caution,
    ConstantChange,
    Decided,
    Decision,
    Failure,
    HostInit,
    LogLine,
    Pair,
    TableChange,
)

__all__ = [
    "Caution",
    "ConstantChange",
    "Decided",
    "Decision",
    "Failure",
    "HostInit",
    "LogLine",
    "Pair",
    "PluginHost",
    "TableChange",
    "bench_path",
    "exported_interfaces",
    "host_path",
    "net_path",
    "sendrecv_path",
    "tuner_path",
]
