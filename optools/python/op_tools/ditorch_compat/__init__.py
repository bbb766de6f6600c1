# SPDX-License-Identifier: Apache-2.0
"""ditorch's forms: its hooks, lines, folders and helpers."""
