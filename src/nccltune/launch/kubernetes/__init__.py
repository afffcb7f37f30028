# SPDX-License-Identifier: Apache-2.0
"""A job on a Kubernetes cluster, through kubectl: its user's contexts, logins and rights.

kubectl.py  call kubectl, and read its errors
schema.py   the fields of an MPIJob and a JobSet
run.py      create, watch and delete a job
seen.py     the state of a job and its pods, from what the cluster reports
log.py      the log of a pod while it grows
collect.py  keep what explains a failed job
"""
