# SPDX-License-Identifier: Apache-2.0
"""The `python` of documents behaves as an interpreter does: streams, folder, variables, exit, signals."""

import os
import signal
import subprocess
import sys
import time

import pytest
from fork_commands import python_command


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with python_command(tmp_path_factory.mktemp("bin")) as path:
        yield path


def shell(python, script, **options):
    script = script.replace("python", python)
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, **options)


def test_streams_folder_and_variables(python, tmp_path):
    (tmp_path / "show.py").write_text(
        "import os, sys\n"
        "print(sys.stdin.read().strip(), os.environ['WORD'], os.getcwd(), *sys.argv[1:])\n"
        "print('aside', file=sys.stderr)\n"
        "print('torch' in sys.modules, __name__, __file__, sys.path[1])\n"
    )
    done = shell(python, "echo given | WORD=one PYTHONPATH=near python show.py 2 3", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        f"given one {tmp_path} 2 3",
        f"True __main__ show.py {tmp_path / 'near'}",
    ]
    assert done.stderr == "aside\n" and done.returncode == 0


@pytest.mark.parametrize(
    "code, status",
    [("import sys; sys.exit(3)", 3), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_end(python, code, status):
    done = shell(python, f'python -c "{code}"; exit $?')
    assert done.returncode == status
    assert ("ZeroDivisionError" in done.stderr) == (code == "1 / 0")


@pytest.mark.parametrize("arguments", ["-V", "nothing.py", "-X utf8 -c 'print(1)'"])
def test_the_rest_is_a_real_interpreter(python, arguments):
    done = shell(python, f"python {arguments}")
    real = subprocess.run(
        ["bash", "-c", f"{sys.executable} {arguments}"], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (real.stdout, real.returncode)
    assert done.stderr == real.stderr


def test_a_fork_ends_with_its_command(python, tmp_path):
    (tmp_path / "wait.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'ready')\ntime.sleep(60)\n"
    )
    command = subprocess.Popen([python, "wait.py"], cwd=tmp_path)
    ready = tmp_path / "ready"
    while not ready.exists():
        time.sleep(0.01)
    pid = int(ready.read_text())
    assert pid != command.pid
    command.send_signal(signal.SIGTERM)
    command.wait()
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError("the fork is still there")
