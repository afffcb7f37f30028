# SPDX-License-Identifier: Apache-2.0
"""Say a job rightly to the launcher a site has, follow it, and check commands before they run."""
