# SPDX-License-Identifier: Apache-2.0
"""Read and write the formats of other programs, one subpackage per format.

text/          lines, cells and documents of any text file, in bounded memory
nccl_log/      NCCL's log (NCCL_DEBUG=INFO) and diagnostics
reading/       modules that all readers share: context, report, runs, platforms, choices
nccl_tests/    text and JSON output of nccl-tests
tuner_config/  NVIDIA's tuner CSV and NCCL's configuration file
topology/      NCCL's topology and graph XML, nvidia-smi's matrix, sysfs
importing/     import of any mix of files into a study: `inputs.read_inputs` and `importer`
"""
