# SPDX-License-Identifier: Apache-2.0
"""`python -m nccltune`, as the command `nccltune`."""

from nccltune.cli import main

main()
