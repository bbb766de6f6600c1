# SPDX-License-Identifier: Apache-2.0
"""debug.graph_dump: a graph as text, as Python that runs, as nodes for TensorBoard, as JSON."""

import datetime
import json
import os

import torch


def write(module: torch.fx.GraphModule, form: str, folder: str | None, stage: str, number: int):
    """`stage` is original or optimized. Returns the file's name."""
    from torchair.fx_summary import _rank

    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d%H%M%S%f")
    name = f"dynamo_{stage}_graph_{number}_rank_{_rank()}_pid_{os.getpid()}_ts_{now}.{form}"
    folder = folder or os.getcwd()
    os.makedirs(folder, mode=0o750, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(_WRITERS[form](module))
    return path


def json_text(module: torch.fx.GraphModule) -> str:
    """The form that torchair reads back, or the reason why the graph cannot be written."""
    from torchair import _graph_json

    try:
        data = _graph_json.write(module)
    except _graph_json.NotWritable as why:
        data = {"version": _graph_json.VERSION, "incomplete": str(why)}
        data["lines"] = node_text(module).splitlines()
    return json.dumps(data, indent=1) + "\n"


def tensorboard_text(module: torch.fx.GraphModule) -> str:
    """Nodes as TensorBoard's graph page reads them."""
    from torchair.fx_summary import printed

    lines = []
    for node in module.graph.nodes:
        lines += ["node {", f"  name: {_quoted(node.name)}", f"  op: {_quoted(node.target)}"]
        lines += [f"  input: {_quoted(n.name)}" for n in node.all_input_nodes]
        if node.meta.get("val") is not None:
            value = _quoted(printed(node.meta["val"]))
            lines += ["  attr {", '    key: "result"', f"    value {{ s: {value} }}", "  }"]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _quoted(value) -> str:
    return json.dumps(str(value), ensure_ascii=True)


def node_text(module: torch.fx.GraphModule) -> str:
    """A line per node: name, target, arguments, results; the user's line before it."""
    from torchair.fx_summary import printed

    lines, place = [], None
    for node in module.graph.nodes:
        if (where := user_line(node)) not in (None, place):
            place = where
            lines.append(f"# {where}")
        value = f" : {printed(node.meta['val'])}" if node.meta.get("val") is not None else ""
        args = ", ".join([*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())])
        target = "" if node.op == "output" else f" {node.target}"
        lines.append(f"%{node.name} = {node.op}{target}({args}){value}")
    return "\n".join(lines) + "\n"


def user_line(node) -> str | None:
    """'file:line' of the user's code a node comes from."""
    trace = node.meta.get("stack_trace")
    places = [
        line.strip() for line in (trace or "").splitlines() if line.strip().startswith("File")
    ]
    if not places:
        return None
    file, _, rest = places[-1].removeprefix('File "').partition('", line ')
    return f"{file}:{rest.split(',')[0]}"


def python_text(module: torch.fx.GraphModule) -> str:
    """A program of its own: inputs drawn with the sizes seen, then the graph."""
    inputs = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(f"    {node.name} = {_drawn(node.meta.get('val'))}")
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    code = module.graph.python_code("self", verbose=False)
    body = code.src.replace("def forward(self", "def graph(self", 1)
    # torch's generator writes device(...), inf and such as bare names.
    head = "import operator\nfrom math import inf, nan\n\nimport torch\nimport torch_npu\n"
    head += "from torch import device\n\nNoneType = type(None)\n"
    tail = ["", "", 'if __name__ == "__main__":', *inputs]
    tail.append(f"    print(graph(None{''.join(', ' + n for n in names)}))")
    return head + "\n" + body.strip() + "\n" + "\n".join(tail) + "\n"


def _drawn(value) -> str:
    if not isinstance(value, torch.Tensor):
        return "2" if value is None or isinstance(value, torch.SymInt) else repr(value)
    sizes = [_size(s) for s in value.shape]
    strides = [_size(s) for s in value.stride()]
    where = f"dtype={value.dtype}, device='{value.device.type}'"
    return f"torch.empty_strided({sizes}, {strides}, {where}).zero_()"


def _size(value) -> int:
    if isinstance(value, int):
        return value
    hint = getattr(value.node, "hint", None)
    return int(hint) if hint is not None else 2


_WRITERS = {
    "txt": node_text,
    "pbtxt": tensorboard_text,
    "py": python_text,
    "json": json_text,
}
