# SPDX-License-Identifier: Apache-2.0
"""From curves to rules: search, lint, explain."""
