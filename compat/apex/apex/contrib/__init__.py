# SPDX-License-Identifier: Apache-2.0
"""apex.contrib: combined tensors."""
