# SPDX-License-Identifier: Apache-2.0
"""From samples to S-curves and findings. Pure: reads samples, writes nothing."""
