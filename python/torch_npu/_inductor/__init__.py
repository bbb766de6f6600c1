# SPDX-License-Identifier: Apache-2.0
"""Importable, as programs import it for its side effects: there are none.

Inductor generates no code for npu devices; torch.compile says so, and which backends work.
"""
