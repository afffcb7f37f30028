# SPDX-License-Identifier: Apache-2.0
"""nccltune: measure what NCCL does on a platform, fix its choices, and prove the fix."""

__version__ = "0.1.0"
