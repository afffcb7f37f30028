# SPDX-License-Identifier: Apache-2.0
"""Run a job on a Kubernetes cluster through kubectl, with the login and rights of its user.

kubectl.py  call kubectl, and read its errors
schema.py   the fields of an MPIJob and a JobSet
run.py      create, watch and delete a job; save what a failed one leaves
seen.py     the state of a job and its pods, from kubectl's JSON
log.py      the log of a pod while it grows
"""
