# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex.ops: streams and events are torch.npu's; nothing else is public here."""
