# SPDX-License-Identifier: Apache-2.0
"""A user's script in processes of its own: once, twice, many times."""
