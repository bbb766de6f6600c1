# SPDX-License-Identifier: Apache-2.0
"""opennpu pack new, check, build: what a project is, what is refused, and in which words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pack_site import Site, build, opennpu

ROOT = Path(__file__).resolve().parents[2]


def new(folder, name="my_ops", kind="cpp"):
    done = opennpu("pack", "new", name, "--kind", kind, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.mark.parametrize("kind", ["cpp", "stable", "python"])
def test_a_new_project_builds_and_passes_its_test(kind, tmp_path):
    """Offline: nothing is fetched, only what is installed is used."""
    project = new(tmp_path, kind=kind)
    site = Site(build(project), tmp_path)
    code = (project / "tests/test_my_ops.py").read_text()
    done = site.run(code)
    assert done.returncode == 0 and "OK" in done.stderr, done.stderr
    done = site.run("""
import torch, torch_npu
x = torch.ones(2).npu()
f = torch.compile(lambda a: torch.ops.my_ops.scaled_add(a, a, 2.0), backend="aot_eager", fullgraph=True)
assert f(x).tolist() == [3, 3]
""")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_from_the_projects_own_folder(tmp_path):
    """As its README says, and as `python -m pytest` does: Python's path begins with the project, which is no pack."""
    project = new(tmp_path, kind="python")
    site = Site(build(project), tmp_path)
    code = "import torch, torch_npu, my_ops; x = torch.ones(2).npu(); print(torch.ops.my_ops.scaled_add(x, x, 2.0).tolist(), my_ops.__file__)"
    done = site.run(code, cwd=project)
    assert done.stdout.split("] ")[0] == "[3.0, 3.0", done.stderr
    assert done.stdout.strip().endswith(str(site.folder / "my_ops/__init__.py")) and not done.stderr


@pytest.mark.skipif(
    os.environ.get("OPENNPU_TEST_FULL") != "1", reason="builds two packs; make test-full"
)
def test_two_packs_of_one_name(tmp_path):
    """The first is loaded; the second is left out, and both are named."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        new(folder, kind="python")
    site = Site(build(first / "my_ops"), tmp_path)
    other = build(second / "my_ops")
    # Another distribution with the same entry point.
    (info,) = other.glob("*.dist-info")
    info.rename(other / "their_ops-1.0.dist-info")
    meta = other / "their_ops-1.0.dist-info/METADATA"
    meta.write_text(meta.read_text().replace("Name: my_ops", "Name: their_ops"))
    done = site.run(
        "import torch, torch_npu; x = torch.ones(2).npu(); print(torch.ops.my_ops.scaled_add(x, x, 2.0).tolist())",
        PYTHONPATH=f"{site.folder}:{other}",
    )
    assert done.stdout.strip() == "[3.0, 3.0]"
    assert f"{other}/my_ops: {site.folder}/my_ops is a pack of the same name" in done.stderr, (
        done.stderr
    )


def test_two_packs_with_one_operator(tmp_path):
    """Each loads alone; together the second is left out whole and the first goes on."""
    sites = []
    for name in ("first_ops", "second_ops"):
        project = new(tmp_path, name, "python")
        text = (project / "ops.yaml").read_text()
        (project / "ops.yaml").write_text(text.replace(f"{name}::", "shared::"))
        functions = project / name / "functions.py"
        functions.write_text(
            functions.read_text().replace("alpha=scale", f"alpha=scale * {len(sites) + 1}")
        )
        sites.append(Site(build(project), tmp_path))
    done = sites[0].run(
        "import torch, torch_npu; x = torch.ones(2).npu(); print(torch.ops.shared.scaled_add(x, x, 2.0).tolist())",
        PYTHONPATH=f"{sites[0].folder}:{sites[1].folder}",
    )
    assert done.stdout.strip() == "[3.0, 3.0]", done.stderr
    assert (
        "'second_ops' is left out" in done.stderr
        and "ops.yaml:7: shared::scaled_add" in done.stderr
    )


def test_pip_builds_it_too(tmp_path):
    project = new(tmp_path, kind="python")
    done = subprocess.run(
        [sys.executable, "-c", "from opennpu import pack_backend as b; print(b.build_wheel('out'))"],
        cwd=project, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "my_ops-0.1.0-py3-none-any.whl", done.stderr
    text = (project / "pyproject.toml").read_text()
    assert 'build-backend = "opennpu.pack_backend"' in text and "requires = []" in text


@pytest.mark.parametrize(
    "name", ["My-Ops", "x", "torch_npu", "1st", "../up", "class", "json", "aten"]
)
def test_names_that_are_refused(name, tmp_path):
    done = opennpu("pack", "new", name, cwd=tmp_path)
    assert done.returncode == 2 and "is no name for a pack" in done.stderr
    assert not list(tmp_path.iterdir())


def test_check_names_file_line_and_nearest(tmp_path):
    """The guide's own slips: a list without dashes, add.Scaler."""
    project = new(tmp_path)
    (project / "ops.yaml").write_text(
        "backend: NPU\ncpp_namespace: at_npu::native\nsupported:\n"
        "  add.Tensor\n  add_.Tensor\n  add.out\n  add.Scaler\n  add_.Scaler\n"
    )
    done = opennpu("pack", "check", cwd=project)
    assert done.returncode == 1
    assert "ops.yaml:4: key 'supported': expected a list, found text" in done.stderr
    assert "ops.yaml:7:" in done.stderr and "did you mean 'add.Scalar'?" in done.stderr
    assert "ops.yaml:8:" in done.stderr and "did you mean 'add_.Scalar'?" in done.stderr
    done = opennpu("pack", "build", cwd=project)
    assert done.returncode == 1 and "did you mean 'add.Scalar'?" in done.stderr
    assert opennpu("pack", "check", cwd=tmp_path).returncode == 1


def test_check_lists_what_is_right(tmp_path):
    done = opennpu("pack", "check", cwd=new(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (
        "custom: my_ops::scaled_add" in done.stdout and "1 operators, nothing wrong" in done.stdout
    )


def test_a_python_pack_without_its_function(tmp_path):
    project = new(tmp_path, kind="python")
    (project / "my_ops/functions.py").write_text("def other():\n    pass\n")
    site = Site(build(project), tmp_path)
    done = site.run("import torch, torch_npu; print((torch.ones(1).npu() + 1).item())")
    assert done.stdout.strip() == "2.0"
    assert "ops.yaml:7: my_ops::scaled_add: no function 'scaled_add' in" in done.stderr, done.stderr


def test_gradients_and_onnx_of_a_python_pack(tmp_path):
    """As docs/custom-operators.md has them: register_autograd in __init__.py, translations in onnx.py."""
    project = new(tmp_path, kind="python")
    (project / "my_ops/__init__.py").write_text("""
import torch

def keep(ctx, inputs, output):
    ctx.scale = inputs[2]

def backward(ctx, grad):
    return grad, grad * ctx.scale, None

torch.library.register_autograd("my_ops::scaled_add", backward, setup_context=keep)
""")
    (project / "my_ops/onnx.py").write_text("""
from onnxscript import opset18 as op

def scaled_add(a, b, scale):
    return op.Add(a, op.Mul(b, op.Constant(value_float=scale)))

TRANSLATIONS = {"my_ops::scaled_add": scaled_add}
""")
    site = Site(build(project), tmp_path)
    done = site.run("""
import sys, torch, torch_npu
assert "onnxscript" not in sys.modules
a, b = (torch.ones(2).npu().requires_grad_() for _ in range(2))
y = torch.ops.my_ops.scaled_add(a, b, 3.0)
y.sum().backward()
assert y.tolist() == [4, 4] and a.grad.tolist() == [1, 1] and b.grad.tolist() == [3, 3]
f = torch.compile(lambda a, b: torch.ops.my_ops.scaled_add(a, b, 3.0), backend="aot_eager", fullgraph=True)
b.grad = None
f(a, b).sum().backward()
assert b.grad.tolist() == [3, 3]
check = torch.library.opcheck
op, able = torch.ops.my_ops.scaled_add.default, ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
check(op, (a, b, 3.0), test_utils=able)
try:  # as docs/custom-operators.md says
    check(op, (a, b, 3.0), test_utils="test_autograd_registration")
except Exception as error:
    assert "NYI devices other than CPU/CUDA/XPU" in str(error)
else:
    raise AssertionError("opcheck knows npu now: say so in docs/custom-operators.md")

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.ops.my_ops.scaled_add(a, b, 3.0)

program = torch_npu.onnx.export(Model(), (a.detach(), b.detach()), verbose=False)
print(*[n.op_type for n in program.model_proto.graph.node])
import onnxruntime
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
names = [i.name for i in session.get_inputs()]
print(session.run(None, dict(zip(names, [a.detach().cpu().numpy()] * 2)))[0].tolist())
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[4.0, 4.0]" and "Add" in done.stdout


def test_a_python_pack_that_fails_leaves_nothing(tmp_path):
    project = new(tmp_path, kind="python")
    (project / "my_ops/__init__.py").write_text(
        "import torch\ntorch.ops.my_ops.scaled_add\n1 / 0\n"
    )
    site = Site(build(project), tmp_path)
    done = site.run("""
import torch, torch_npu
print(hasattr(torch.ops.my_ops, "scaled_add"), (torch.ones(1).npu() + 1).item())
""")  # fmt: skip
    assert done.stdout.strip() == "False 2.0"
    assert "__init__.py:3: ZeroDivisionError" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "kind, file, gone, said",
    [
        ("python", "my_ops/functions.py", "def scaled_add(", "no function 'scaled_add' in my_ops/functions.py"),
        ("cpp", "csrc/functions.cpp", "NPUNativeFunctions::scaled_add", "no function NPUNativeFunctions::scaled_add in the sources"),
        ("stable", "csrc/functions.cpp", 'implement("my_ops", "scaled_add"', 'no pack.implement("…", "scaled_add", …) in the sources'),
    ],
)  # fmt: skip
def test_check_names_a_function_that_is_missing(kind, file, gone, said, tmp_path):
    project = new(tmp_path, kind=kind)
    done = opennpu("pack", "check", cwd=project)
    assert done.returncode == 0 and "nothing wrong" in done.stdout, done.stderr
    text = (project / file).read_text()
    assert gone in text
    (project / file).write_text(text.replace(gone, gone.replace("scaled_add", "other")))
    done = opennpu("pack", "check", cwd=project)
    assert done.returncode == 1 and "nothing wrong" not in done.stdout
    assert f"ops.yaml:7: my_ops::scaled_add: {said}" in done.stderr, done.stderr
    (project / file).unlink()
    done = opennpu("pack", "check", cwd=project)
    assert done.returncode == 1 and "Traceback" not in done.stderr


# What g++ and ld print, and what is said to it.
OUTPUTS = {
    "ld returned 1": (
        "functions.o: in function `add':\nRegisterNPU.cpp:(.text+0x1c): undefined reference to "
        "`at_npu::native::NPUNativeFunctions::binary_cross_entropy(at::Tensor const&, long)'\n"
        "collect2: error: ld returned 1 exit status\n",
        ("no source defines with these types", "binary_cross_entropy(at::Tensor const&, long)", "int64_t"),
    ),
    "other parameters": (
        "a.cpp:3:12: error: no declaration matches 'at::Tensor at_npu::native::NPUNativeFunctions::x(int)'\n"
        "b.h:9:3: note: candidate is: 'x(int64_t)'\n",
        ("other parameters than the operator", "int64_t", "scalar_by_value"),
    ),
    "call of overload": (
        "a.cpp:30:9: error: call of overloaded 'NPUAttrDesc(const char [4], int&)' is ambiguous\n",
        ("fits several functions", "NPUAttrDesc(const char [4], int&)", "int64_t(…)"),
    ),
    "no header": (
        "a.cpp:1:10: fatal error: torch_npu/csrc/secret.h: No such file or directory\n",
        ("a header is not there: torch_npu/csrc/secret.h",),
    ),
    "only ld": ("collect2: error: ld returned 1 exit status\n", ("linking failed",)),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTPUTS)
def test_build_errors_are_recognised(name):
    from opennpu import pack_build

    output, words = OUTPUTS[name]
    said = pack_build.explain(output)
    assert said.startswith("cause: ") and all(word in said for word in words), said
    assert pack_build.explain("all is well") == ""


def test_a_print_in_an_installed_function(tmp_path):
    """FAQ "was it called": installed sources are read-only; edited, they print what they are given; put back, not."""
    project = new(tmp_path, kind="python")
    site = Site(build(project), tmp_path)
    file = site.folder / "my_ops/functions.py"
    before = file.read_text()
    code = "import torch, torch_npu; x = torch.ones(2, 3).npu(); torch.ops.my_ops.scaled_add(x, x, 2.0)"
    file.chmod(0o444)  # as the guide finds them
    file.chmod(0o644)
    file.write_text(
        before.replace(
            "    return torch.add", "    print('here', a.shape, scale)\n    return torch.add"
        )
    )
    assert site.run(code).stdout == "here torch.Size([2, 3]) 2.0\n"
    file.write_text(before)
    file.chmod(0o444)
    done = site.run(
        code + "; print(torch_npu._C._pack_calls())",
        SLOG_PRINT_TO_STDOUT="1", ASCEND_GLOBAL_LOG_LEVEL="0",
    )  # fmt: skip
    assert "here" not in done.stdout and "{'my_ops::scaled_add': 1}" in done.stdout, done.stderr
    assert done.stdout.count("operator pack: my_ops::scaled_add") == 1


@pytest.mark.skipif(
    os.environ.get("OPENNPU_TEST_FULL") != "1", reason="compiles ATen's headers; make test-full"
)
def test_the_guides_build_error(tmp_path):
    """FAQ "ld returned 1", int for int64_t: the compiler's real words, with cause and cure below."""
    project = new(tmp_path)
    for path, old, text in (
        ("ops.yaml", "float scale", "int scale"),
        ("csrc/functions.cpp", "double scale", "int scale"),
    ):
        file = project / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, text))
    done = opennpu("pack", "build", cwd=project)
    assert done.returncode == 1, done.stdout
    for words in ("a function has other parameters than the operator", "scaled_add(", "int64_t"):
        assert words in done.stderr, done.stderr


@pytest.mark.skipif(
    os.environ.get("OPENNPU_TEST_FULL") != "1", reason="compiles ATen's headers; make test-full"
)
def test_an_int_is_an_attribute(tmp_path):
    """FAQ "call of overload": what is ambiguous in the guide's headers is not in these."""
    project = new(tmp_path)
    source = project / "csrc/functions.cpp"
    text = source.read_text()
    call = '  at_npu::native::OpCommand().Name("Add").Attr("n", 1);\n'
    text = text.replace("  return at::add", call + "  return at::add")
    source.write_text('#include "torch_npu/csrc/framework/OpCommand.h"\n' + text)
    done = opennpu("pack", "build", cwd=project)
    assert call in text and done.returncode == 0, done.stderr


def test_a_real_build_error_is_recognised(tmp_path):
    """A function that is declared and nowhere defined. The stable headers compile quickly."""
    project = new(tmp_path, kind="stable")
    source = project / "csrc/functions.cpp"
    source.write_text("int missing(int);\nint here() { return missing(1); }\n" + source.read_text())
    done = opennpu("pack", "build", cwd=project)
    assert done.returncode == 1 and "cause: linking failed" in done.stderr, done.stderr
    assert "missing" in done.stderr


def test_the_guides_build_command():
    """ci/build.sh calls `make wheel`; bad arguments are refused. The wheels themselves: make test-wheel."""
    script = ROOT / "ci/build.sh"
    for argument in ("--pyton=3.11", "--python=2.7"):
        done = subprocess.run(["bash", script, argument], capture_output=True, text=True)
        assert done.returncode == 2 and argument in done.stderr
    done = subprocess.run(["bash", script, "--python=3.99"], capture_output=True, text=True)
    assert done.returncode == 2 and "python3.99 is not installed here" in done.stderr
    env = {**os.environ, "MAKEFLAGS": "-n"}
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script, f"--python={version}"], capture_output=True, text=True,
        env={**env, "PATH": path},
    )  # fmt: skip
    assert done.returncode == 0 and "pip wheel" in done.stdout and "*.whl dist" in done.stdout, (
        done.stderr
    )
