# SPDX-License-Identifier: Apache-2.0
"""The command line of OpenNPU: `opennpu doctor`, `opennpu explain`."""
