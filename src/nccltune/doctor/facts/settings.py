# SPDX-License-Identifier: Apache-2.0
"""Facts of settings, plugins and NCCL libraries."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class SettingRecord(FactRecord):
    """One record of the fact `settings`."""

    name: Annotated[str | None, "NCCL_ALGO"] = None
    value: Annotated[str | None, "as it stands there"] = None
    kind: Annotated[
        str | None,
        (
            "environment, system_conf, user_conf, named_conf, job_file, log, "
            "profile (shell start-up file), post (a command in a text)"
        ),
    ] = None
    where: Annotated[str | None, "FILE:LINE, or environment"] = None
    meant: Annotated[str | None, "the variable that a misspelt name means"] = None
    in_force: Annotated[
        bool | None,
        (
            "NCCL would use this one: the environment wins over the user's file, that over "
            "/etc/nccl.conf; a job file's or a profile's is not in force by itself"
        ),
    ] = None


SETTINGS = records(
    "settings",
    SettingRecord,
    meaning=(
        "NCCL_*, NCCLTUNE_*, FI_*, OFI_NCCL_*, UCX_*, CUDA_*, TORCH_NCCL_* and LD_LIBRARY_PATH "
        "settings from everywhere; empty where none is set anywhere"
    ),
    read=(
        "environment; /etc/nccl.conf; ~/.nccl.conf or what NCCL_CONF_FILE names; job files "
        "(sbatch, manifests, mpirun lines, scripts); 'set by environment to' and 'set by' lines "
        "of an NCCL log"
    ),
)

NAMED_SETTINGS = records(
    "named_settings",
    SettingRecord,
    meaning=(
        "settings, and those that commands beside a log or an output give to programs; whether "
        "these were in force is not known"
    ),
    read=(
        "settings; export lines, -x and -e options and assignments before a command, in the text "
        "of a post"
    ),
)


class DeviceList(FactRecord):
    """One record of the fact `device_lists`."""

    name: Annotated[str | None, "NCCL_IB_HCA, NCCL_SOCKET_IFNAME, NCCL_OOB_NET_IFNAME, GLOO_*"] = (
        None
    )
    value: Annotated[str | None, "the list"] = None
    where: Annotated[str | None, "FILE:LINE, or environment"] = None
    in_force: Annotated[bool | None, "as in the fact settings"] = None
    takes: Annotated[list[str] | None, "devices shown that it selects"] = None
    leaves_out: Annotated[
        list[str] | None,
        "active RDMA devices shown that it does not select, of the kind and rate of one that it "
        "does",
    ] = None
    unmatched: Annotated[list[str] | None, "names in it that no device shown has"] = None
    beyond: Annotated[
        list[str] | None, "devices selected only because a listed device's name is their beginning"
    ] = None


DEVICE_LISTS = records(
    "device_lists",
    DeviceList,
    meaning=(
        "settings that select devices, beside the devices that the evidence shows; read as NCCL "
        "reads them: ^ excludes, = takes whole names, else names are beginnings"
    ),
    read="settings; hcas; nics",
)


class PluginFile(FactRecord):
    """One record of the fact `plugins`."""

    path: Annotated[str | None, "the file"] = None
    kind: Annotated[str | None, "net, tuner, profiler, env: as what it would be loaded"] = None
    named_by: Annotated[str | None, "NCCL_NET_PLUGIN=..., or the library path"] = None
    tuner_symbols: Annotated[list[str] | None, "ncclTunerPlugin_v*"] = None


PLUGINS = records(
    "plugins",
    PluginFile,
    meaning=(
        "shared objects that NCCL would load as plugin: what the settings name, libnccl-net.so, "
        "libnccl-tuner.so, libnccl-profiler.so and libnccl-env.so in the library path; those of "
        "them in known folders"
    ),
    read="settings, LD_LIBRARY_PATH, ldconfig -p; symbols of the ELF file",
)
NCCL_VERSION = fact(
    "nccl.version",
    str,
    meaning="NCCL that jobs use: 2.28.9",
    read="log; the loaded or nearest libnccl.so.2; the Python package",
)


class NcclLibrary(FactRecord):
    """One record of the fact `nccl.libraries`."""

    path: Annotated[str | None, "the file"] = None
    version: Annotated[str | None, "2.28.9"] = None


NCCL_LIBRARIES = records(
    "nccl.libraries",
    NcclLibrary,
    meaning="NCCL libraries found",
    read="ldconfig -p, LD_LIBRARY_PATH, LD_PRELOAD, Python packages",
)
