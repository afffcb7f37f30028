# SPDX-License-Identifier: Apache-2.0
"""Parse the outputs of tools and of the kernel. Input is text, output is records.

copies.py         nvbandwidth, p2pBandwidthLatencyTest
elf.py            symbol names of an ELF file
ethtool.py        `ethtool -i` and `-S`
failure_words.py  words of lines that state a failure
failures.py       lines of a log that state a failure
gids.py           `show_gids`
gpu_query.py      `nvidia-smi -q`, XML and CSV queries
imex.py           `nvidia-imex-ctl`
interfaces.py     `ip addr`, `ip link`
job_settings.py   settings in job files and in commands of posts
kernel.py         modules, cpuinfo or lscpu, process status, free memory
kernel_log.py     `dmesg`, `journalctl -k`
limits.py         limits of a process, `docker inspect`
listed.py         lines in the format of `grep -n`
lspci.py          `lspci -vvv`
nccl_init.py      the start of communicators in NCCL's log
nccl_lines.py     the parts of NCCL's log that facts need (`formats.nccl_log` parses it)
nccl_warnings.py  causes of NCCL's warnings
nvlink.py         `nvidia-smi nvlink -s`
p2p_matrix.py     `nvidia-smi topo -p2p`
pasted.py         lines of ACS and links without the rest
pci_config.py     PCI configuration space
perftest.py       `ib_write_bw` and similar tests
pings.py          pings between NICs
prose.py          what a person writes beside a log: hangs, containers, settings that help
ras.py            ranks and processes that NCCL's RAS reports
rdma_counters.py  `rdma statistic`, `perfquery`, `ibqueryerrors`
rdma_ports.py     `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`
result_rows.py    wrong elements and lone ranks in results of nccl-tests
services.py       states of services
symbols.py        plugins and the tuner interfaces they define
text.py           helpers: bytes to text, words to numbers, bus ids
topo_matrix.py    `nvidia-smi topo -m`
tree.py           small files of /sys and /proc, in the format of `grep -H`
watchdog.py       the calls in which PyTorch's watchdog found the ranks
"""
