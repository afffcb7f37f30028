# SPDX-License-Identifier: Apache-2.0
"""From a node's hardware to its links, paths, flows and the link that limits a collective."""
