# SPDX-License-Identifier: Apache-2.0
"""Tests of the wheels in dist/, which `make wheels` builds."""
