# SPDX-License-Identifier: Apache-2.0
"""CompilerConfig: TorchAir's option tree, with its names, defaults and allowed values."""

from torchair.configs._option import (
    Group,
    Option,
    choice,
    function,
    integer,
    integers,
    of_type,
    path,
    switch,
    text,
)  # fmt: skip

MODES = ("max-autotune", "reduce-overhead", "npugraph_ex")


class _Free(Group):
    """Members that are plain attributes, as TorchAir's export group has them."""

    def __setattr__(self, name: str, value) -> None:
        member = self._members.get(name)
        if isinstance(member, Option):
            member.set(value, name)
        else:
            super().__setattr__(name, value)


def _debug() -> Group:
    return Group(
        "DebugConfig",
        graph_dump=Group(
            "GraphDumpConfig", type=choice(None, "txt", "pbtxt", "py", "json"), path=path(None)
        ),
        data_dump=Group(
            "DataDumpConfig", type=choice(None, "npy"), path=path(None), filter=function()
        ),
        fx_summary=Group(
            "FxSummaryConfig", type=choice(None, "csv"), skip_compile=switch(True), _path=path(None)
        ),
        run_eagerly=switch(False),
        deadlock_check=switch(False),
        aclgraph=Group(
            "AclGraphDebugConfig",
            disable_reinplace_inplaceable_ops_pass=switch(False),
            disable_reinplace_input_mutated_ops_pass=switch(False),
            disable_mempool_reuse_in_same_fx=switch(False),
            enable_output_clone=switch(False),
            static_capture_size_limit=integer(64, 1),
            clone_input=switch(True),
            remove_cat_ops=switch(True),
        ),
    )


def _export() -> Group:
    return _Free(
        "ExportConfig",
        export_mode=Option(False, plain=True),
        export_path_dir=Option("./", plain=True),
        export_name=Option(plain=True),
        weight_name=Option(plain=True),
        inputs_name=Option(plain=True),
        experimental=Group(
            "ExportExperimentalConfig",
            enable_record_nn_module_stack=switch(False),
            auto_atc_config_generated=switch(False),
            enable_lite_export=switch(False),
        ),
    )


def _dump() -> Group:
    words = r"[A-Za-z0-9 _/\\.'\"]*"
    steps = r"(\d+(-\d+)?(\|\d+(-\d+)?)*)?"
    return Group(
        "DumpConfig",
        enable_dump=switch(False),
        dump_path=path("./", "directory"),
        dump_mode=choice("all", "input", "output", "all"),
        quant_dumpable=switch(False),
        dump_step=text("", steps, "steps like 0|1|2-5"),
        dump_layer=text("", words, "names of letters, digits, spaces, '_', '/', '\\', '.'"),
        dump_data=choice("tensor", "tensor", "stats"),
        dump_config_path=path(None, "file", ".json"),
        data_dump_stage=choice("optimized", "original", "optimized"),
    )


def _experimental() -> Group:
    return Group(
        "ExperimentalConfig",
        cc_parallel_enable=switch(False),
        keep_inference_input_mutations=switch(True),
        memory_efficiency=switch(False),
        frozen_parameter=switch(False),
        static_model_ops_lower_limit=integer(None, -1),
        jit_compile=choice("auto", "auto"),
        npu_fx_pass=switch(False),
        aot_config_enable_joint_graph=switch(False),
        aot_config_output_loss_index=Option(0),
        topology_sorting_strategy=choice("DFS", "BFS", "DFS", "RDFS", "StableRDFS"),
        enable_ref_data=switch(False),
        enable_view_optimize=switch(True),
        remove_noop_ops=switch(True),
        tiling_schedule_optimize=switch(False),
        pattern_fusion_pass=switch(True),
        aclgraph=Group(
            "AclGraphExperimentalConfig",
            _aclnn_static_shape_kernel=switch(False),
            _aclnn_static_shape_kernel_build_dir=of_type(None, str),
            _aclnn_static_shape_kernel_sym_value_range=integers(),
            _aclnn_static_shape_kernel_sym_index=integer(0, 0),
            _super_kernel_optimize=switch(False),
            _super_kernel_optimize_options=of_type(None, dict),
            _super_kernel_debug_options=of_type(None, dict),
        ),
    )


def _engine() -> Group:
    return Group(
        "GeConfig",
        enable_single_stream=switch(False),
        oo_level=choice("O3", "O1", "O3"),
        oo_constant_folding=switch(None),
        oo_dead_code_elimination=switch(None),
        export_compile_stat=choice("2", "0", "1", "2"),
        aicore_num=Option(),
        optimization_switch=Option(),
    )


class CompilerConfig(Group):
    def __init__(self):
        super().__init__(
            "CompilerConfig",
            mode=choice("max-autotune", *MODES),
            post_grad_custom_pre_pass=function(),
            post_grad_custom_post_pass=function(),
            debug=_debug(),
            aoe_config=Group(
                "AoeConfig",
                aoe_mode=choice(None, "2"),
                work_path=path("./", "directory"),
                aoe_config_file=path(None, "file"),
            ),
            export=_export(),
            dump_config=_dump(),
            fusion_config=Group("FusionConfig", fusion_switch_file=path(None, "file")),
            experimental_config=_experimental(),
            inference_config=Group(
                "InferenceConfig", dynamic_gears_merge_policy=choice("zip", "zip", "product")
            ),
            ge_config=_engine(),
            npugraphex_config=Group(
                "NpuGraphExConfig",
                capture_error_mode=choice("global", "global", "thread_local", "relaxed"),
                force_recapture=switch(False),
                disable_static_kernel_compile_cache=switch(False),
            ),
            aclgraph_config=_Free("AclGraphConfig", use_custom_pool=Option(plain=True)),
        )

    def __reduce__(self):
        """A saved compiled model holds its configuration: the options that are set, by name."""
        return _made_again, ({name: leaf.raw for name, leaf in self.changed()},)


def _made_again(values: dict) -> CompilerConfig:
    made = CompilerConfig()
    for name, leaf in made.leaves():
        if name in values:
            leaf._value = values[name]  # checked when it was set, maybe on another machine
    return made
