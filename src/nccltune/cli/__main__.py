# SPDX-License-Identifier: Apache-2.0
"""Run `nccltune` as `python -m nccltune.cli`."""

from nccltune.cli import main

main()
