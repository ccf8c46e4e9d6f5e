"""demask_ray on a cluster of two nodes on this machine: Serve, Data, evaluations.

    python python/tests/ray/run.py [--wheel FILE] [--demask FILE] [TEST ...]

Ray is installed once, at a pinned version, under target/ray, and the package as the wheel FILE, which is built if none is
named (that takes minutes). --demask is the command that evaluations are compared with, target/release/demask. TEST is a
module, a class or a test: `test_serving`, `test_serving.Changes`. The machine needs two cores, 4 GiB and about ten minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = next(folder for folder in HERE.parents if (folder / "Cargo.lock").exists())
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
TESTS = ["test_refusals", "test_serving", "test_batches", "test_evaluation", "test_example", "test_pages"]


def environment():
    """The interpreter of an environment with Ray, made if it is not there or is of other versions."""
    folder, wanted = TARGET / "ray", (HERE / "requirements.txt").read_text()
    stamp, program = folder / "installed", folder / "bin/python"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip(program, "-r", str(HERE / "requirements.txt"))
        stamp.write_text(wanted)
    return program


def pip(program, *words):
    subprocess.run([program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words], check=True)


def wheel(program):
    """Builds the wheel of this tree."""
    out = TARGET / "ray" / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([program, "-m", "maturin", "build", "--release", "--strip", "--locked", "--quiet", "--out", out], check=True, cwd=ROOT / "python")
    return next(out.glob("demask-*.whl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="the package [default: built from this tree]")
    parser.add_argument("--demask", type=Path, default=TARGET / "release" / "demask", help="the command")
    parser.add_argument("tests", nargs="*", metavar="TEST", default=TESTS)
    asked = parser.parse_args()
    if not asked.demask.exists():
        sys.exit(f"{asked.demask} is not there: build it with `cargo build --release -p demask-cli`, or name it with --demask")
    program = environment()
    pip(program, "--force-reinstall", "--no-deps", str(asked.wheel or wheel(program)))
    strict = ["-m", "mypy", "--strict", "--python-version", "3.10"]
    subprocess.run([program, *strict, "-p", "demask_ray"], check=True, cwd=TARGET / "ray")
    subprocess.run([program, *strict, ROOT / "python" / "examples" / "ray_batch.py"], check=True, cwd=TARGET / "ray")
    subprocess.run([program, "-m", "pyright", "--pythonpath", program, "--warnings", "-p", HERE / "pyrightconfig.json"], check=True)
    variables = {**os.environ, "DEMASK_BINARY": str(asked.demask.resolve())}
    sys.exit(subprocess.run([program, "main.py", *asked.tests], cwd=HERE, env=variables).returncode)


if __name__ == "__main__":
    main()
