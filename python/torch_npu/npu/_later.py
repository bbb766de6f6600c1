# SPDX-License-Identifier: Apache-2.0
"""Names of torch.npu that later parts of the product bring.

They exist and raise NotImplementedError when called, so that a program fails
at the call and says why. docs/api.md has the table.
"""

from ._utils import not_yet

GRAPHS = "device graphs"
RECOVERY = "fault recovery"

LATER = {
    "NpuGraphOpHandler": GRAPHS,
    "graph_task_group_begin": GRAPHS,
    "graph_task_group_end": GRAPHS,
    "graph_task_update_begin": GRAPHS,
    "graph_task_update_end": GRAPHS,
    "register_npu_graph_handler": GRAPHS,
    "super_kernel_scope_begin": GRAPHS,
    "super_kernel_scope_end": GRAPHS,
    "check_uce_in_memory": RECOVERY,
    "obfuscation_calculate": RECOVERY,
    "obfuscation_finalize": RECOVERY,
    "obfuscation_initialize": RECOVERY,
    "restart_device": RECOVERY,
    "stop_device": RECOVERY,
    "stress_detect": RECOVERY,
}

globals().update({name: not_yet(name, part) for name, part in LATER.items()})
__all__ = [*LATER]
