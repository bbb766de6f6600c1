# SPDX-License-Identifier: Apache-2.0
"""Modes of the configuration: the options that each ignores, and options given to torch.compile itself."""

import copy
import warnings

# name in torch.compile(options=) -> (name in the tree, whether its meaning is the opposite there)
OPTIONS = {
    "force_eager": ("debug.run_eagerly", False),
    "use_graph_pool": ("aclgraph_config.use_custom_pool", False),
    "reuse_graph_pool_in_same_fx": ("debug.aclgraph.disable_mempool_reuse_in_same_fx", True),
    "capture_limit": ("debug.aclgraph.static_capture_size_limit", False),
    "clone_input": ("debug.aclgraph.clone_input", False),
    "clone_output": ("debug.aclgraph.enable_output_clone", False),
    "static_kernel_compile": ("experimental_config.aclgraph._aclnn_static_shape_kernel", False),
    "super_kernel_optimize": ("experimental_config.aclgraph._super_kernel_optimize", False),
    "super_kernel_optimize_options": (
        "experimental_config.aclgraph._super_kernel_optimize_options", False),
    "super_kernel_debug_options": (
        "experimental_config.aclgraph._super_kernel_debug_options", False),
    "frozen_parameter": ("experimental_config.frozen_parameter", False),
    "remove_noop_ops": ("experimental_config.remove_noop_ops", False),
    "remove_cat_ops": ("debug.aclgraph.remove_cat_ops", False),
    "inplace_pass": ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True),
    "input_inplace_pass": ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True),
    "pattern_fusion_pass": ("experimental_config.pattern_fusion_pass", False),
    "post_grad_custom_pre_pass": ("post_grad_custom_pre_pass", False),
    "post_grad_custom_post_pass": ("post_grad_custom_post_pass", False),
    "dump_tensor_data": ("dump_config.enable_dump", False),
    "data_dump_stage": ("dump_config.data_dump_stage", False),
    "data_dump_dir": ("dump_config.dump_path", False),
    "deadlock_check": ("debug.deadlock_check", False),
    "capture_error_mode": ("npugraphex_config.capture_error_mode", False),
    "force_recapture": ("npugraphex_config.force_recapture", False),
    "disable_static_kernel_compile_cache": (
        "npugraphex_config.disable_static_kernel_compile_cache", False),
    "_vllm_aclnn_static_kernel_sym_index": (
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index", False),
    "_vllm_aclnn_static_kernel_sym_range": (
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range", False),
}  # fmt: skip

# Set options that a mode does nothing with are listed in one warning.
_CAPTURE_ONLY = (
    "debug.aclgraph.disable_reinplace_inplaceable_ops_pass",
    "debug.aclgraph.disable_reinplace_input_mutated_ops_pass",
    "debug.aclgraph.disable_mempool_reuse_in_same_fx",
    "debug.aclgraph.enable_output_clone",
    "debug.aclgraph.clone_input",
)
_ENGINE_ONLY = (
    "debug.fx_summary.type", "debug.data_dump.type", "aoe_config.aoe_mode",
    "dump_config.quant_dumpable", "fusion_config.fusion_switch_file",
    "experimental_config.cc_parallel_enable", "experimental_config.memory_efficiency",
    "experimental_config.static_model_ops_lower_limit", "experimental_config.npu_fx_pass",
    "experimental_config.aot_config_enable_joint_graph", "experimental_config.enable_ref_data",
    "experimental_config.topology_sorting_strategy",
    "experimental_config.tiling_schedule_optimize", "ge_config.enable_single_stream",
    "ge_config.oo_level", "ge_config.oo_constant_folding", "ge_config.oo_dead_code_elimination",
    "ge_config.aicore_num", "ge_config.optimization_switch",
)  # fmt: skip


def check(config) -> None:
    mode = config.mode.value
    if mode == "npugraph_ex":
        return
    ignored = _CAPTURE_ONLY if mode == "max-autotune" else _ENGINE_ONLY
    changed = {name for name, _ in config.changed()}
    listed = [name for name in ignored if name in changed]
    if listed:
        warnings.warn(
            f"mode {mode} does nothing with these options: {', '.join(listed)}", stacklevel=3
        )
    if mode == "reduce-overhead":
        warnings.warn(
            "mode reduce-overhead is deprecated: use mode npugraph_ex, which does the same.",
            DeprecationWarning,
            stacklevel=3,
        )


def leaf(config, name: str):
    """(group, last part) of a dotted name."""
    *groups, last = name.split(".")
    for part in groups:
        config = getattr(config, part)
    return config, last


def own_option(name: str):
    """The option of torch.compile(options=) called `name`, apart from the tree and with its default."""
    from torchair.configs.compiler_config import CompilerConfig

    target, opposite = OPTIONS[name]
    group, last = leaf(CompilerConfig(), target)
    option = getattr(group, last)
    if opposite:
        option.default = not option.default
        option.reset()
    return option


def with_options(config, options: dict):
    """A copy with torch.compile's options in it: those of one compilation stay its own."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"torch.compile(options=): unknown {', '.join(map(repr, unknown))}; "
            f"allowed are {', '.join(OPTIONS)}"
        )
    made = copy.deepcopy(config)
    for name, value in options.items():
        target, opposite = OPTIONS[name]
        group, last = leaf(made, target)
        setattr(group, last, (not value) if opposite else value)
    return made
