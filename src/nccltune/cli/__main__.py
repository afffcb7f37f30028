# SPDX-License-Identifier: Apache-2.0
"""`python -m nccltune.cli`: the same as `nccltune`."""

from nccltune.cli import main

main()
