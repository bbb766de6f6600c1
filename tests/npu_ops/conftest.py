# SPDX-License-Identifier: Apache-2.0
"""Every case is there before any test is read, in one order: the numbers of a case depend on it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cases_attention  # noqa: F401
import cases_attention_8bit  # noqa: F401
import cases_backward  # noqa: F401
import cases_boxes  # noqa: F401
import cases_chains  # noqa: F401
import cases_experts  # noqa: F401
import cases_gradients  # noqa: F401
import cases_indexer  # noqa: F401
import cases_inference  # noqa: F401
import cases_maths  # noqa: F401
import cases_mla  # noqa: F401
import cases_mx  # noqa: F401
import cases_norms  # noqa: F401
import cases_nsa  # noqa: F401
import cases_places  # noqa: F401
import cases_products  # noqa: F401
import cases_qproducts  # noqa: F401
import cases_quantisers  # noqa: F401
import cases_ranks  # noqa: F401
import cases_regions  # noqa: F401
import cases_rnn  # noqa: F401
import cases_rope_cache  # noqa: F401
import cases_sampling  # noqa: F401
import cases_sequences  # noqa: F401
import cases_sparse  # noqa: F401
import cases_vision  # noqa: F401
import cases_writes  # noqa: F401
