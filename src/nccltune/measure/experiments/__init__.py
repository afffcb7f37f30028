# SPDX-License-Identifier: Apache-2.0
"""Experiments: what is specific to each one, on top of `measure/engine`.

choices/     NCCL's choices against its default, in one communicator
p2p/         settings of NCCL's own send/recv
copies/      send/recv by copy engines: from which size, and in which chunks
ab/          a proposed setting, in alternating runs
nccl_tests/  NCCL's choices, measured with a site's nccl-tests binaries
"""
