# SPDX-License-Identifier: Apache-2.0
"""A job on a Kubernetes cluster, through kubectl: its user's contexts, logins and rights."""
