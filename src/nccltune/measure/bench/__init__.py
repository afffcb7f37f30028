# SPDX-License-Identifier: Apache-2.0
"""Start nccltune-bench and exchange requests with it.

conversation.py   requests and answers (docs/design/bench.md)
process.py        the bench on this machine
with_launcher.py  the bench under mpirun, srun or kubectl
pods.py           Kubernetes pods that several benches and programs use one after the other
identity.py       the platform that a bench runs on, and its topology file; whether a study is of it
mps.py            NVIDIA's MPS daemon, for ranks that share a GPU
conditions.py     properties of the calls, and NCCL settings that restrict what can be measured
"""
