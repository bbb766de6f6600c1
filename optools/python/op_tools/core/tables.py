# SPDX-License-Identifier: Apache-2.0
"""Tables of argument descriptions, in ditorch's shape (and spelling)."""

from __future__ import annotations

from prettytable import PrettyTable


def dict_data_list_to_table(data_dict_list: list[dict]) -> PrettyTable:
    """A table with the union of the rows' keys, in the order first seen."""
    keys = list(dict.fromkeys(key for row in data_dict_list for key in row))
    table = PrettyTable()
    table.field_names = keys
    for row in data_dict_list:
        table.add_row([row.get(key, "") for key in keys])
    return table


def _row(name: str, value: object) -> dict:
    return {"name": name, **value} if isinstance(value, dict) else {"name": name, "value": value}


def packect_data_to_dict_list(op_name: str, inputs_dict: dict) -> list[dict]:
    """Rows of what serialize_args_to_dict() gives."""
    rows = []
    args = inputs_dict["args"]
    for i, value in enumerate(args):
        label = op_name if len(args) == 1 else f"{op_name}[{i}]"
        if isinstance(value, (list, tuple)):
            rows += [_row(f"{op_name} [{i}][{j}]", item) for j, item in enumerate(value)]
        else:
            rows.append(_row(label, value))
    for key, value in inputs_dict.get("kwargs", {}).items():
        if isinstance(value, (list, tuple)):
            rows += [_row(f"{op_name} {key}[{j}]", item) for j, item in enumerate(value)]
        else:
            rows.append(_row(f"{op_name} {key}", value))
    return rows
