# SPDX-License-Identifier: Apache-2.0
"""Functions and modules of torch_npu.contrib that stand on npu operators, which are to come."""


def later(name: str):
    """Takes the place of `name`: making or calling it says why it cannot be."""

    def raises(*args, **kwargs):
        from torch_npu.utils._error_code import ErrCode, ops_error

        raise NotImplementedError(
            f"torch_npu.contrib: {name} is not in this version: it comes with npu operators."
            + ops_error(ErrCode.NOT_SUPPORT)
        )

    about = f"Raises NotImplementedError: {name} comes with npu operators."
    if name[0].isupper():
        return type(name, (), {"__init__": raises, "__doc__": about})
    raises.__name__ = raises.__qualname__ = name
    raises.__doc__ = about
    return raises
