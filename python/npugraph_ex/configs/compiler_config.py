# SPDX-License-Identifier: Apache-2.0
"""CompilerConfig of npugraph_ex: the options of torch.compile(options=...), without groups."""

import torchair
from torchair import _modes
from torchair.configs._option import Group, choice

__all__ = ["CompilerConfig"]


class CompilerConfig(Group):
    """Each option is the one of torchair's tree that _modes.OPTIONS names, with the same checks."""

    def __init__(self):
        members = {name: _modes.own_option(name) for name in _modes.OPTIONS}
        super().__init__("CompilerConfig", **members, mode=choice("npugraph_ex", "npugraph_ex"))

    def tree(self) -> torchair.CompilerConfig:
        """The same as torchair's configuration."""
        made = torchair.CompilerConfig()
        made.mode = "npugraph_ex"
        return _modes.with_options(
            made, {name: leaf.raw for name, leaf in self.changed() if name != "mode"}
        )

    def __reduce__(self):
        return _made_again, ({name: leaf.raw for name, leaf in self.changed()},)


def _made_again(values: dict) -> CompilerConfig:
    made = CompilerConfig()
    for name, leaf in made.leaves():
        if name in values:
            leaf._value = values[name]  # checked when it was set, maybe on another machine
    return made


def _process_kwargs_options(config: CompilerConfig, kwargs: dict) -> None:
    """Sets what kwargs["options"] holds. vllm-ascend calls it."""
    for name, value in (kwargs.get("options") or {}).items():
        setattr(config, name, value)
