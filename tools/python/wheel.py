#!/usr/bin/env python3
"""Builds the wheel of the Python package, looks at it from all sides, installs it into a clean environment and tests it there.

    python3 tools/python/wheel.py [--demask BINARY] [--profile dist|release] [--manylinux 2_28] [--long] [--only-build]
    python3 tools/python/wheel.py --library target/release/libdemask_python.so [--demask BINARY]

Needs cargo, Python from 3.10 on and PyPI; what it installs is pinned, and kept under target/python. --demask names the
project's binary, which answers are compared with. --long adds what takes minutes: 200 runs beside the binary, 100,000 requests, lm-evaluation-harness, the notebook.

--library builds no wheel: it tests the library that cargo has built beside everything else, which takes a fraction of the
time. What only a wheel shows (its name, its size, an installation, the generated types) is left out then.

The wheel's tag says the oldest glibc that it was linked for: that of this machine. --manylinux links for an older one,
with zig, which comes from PyPI.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "python"
SOURCES = ROOT / "python"
# What checks and builds, and what the package is tested with.
CHECKS = ["abi3audit==0.0.26", "mypy==2.4.1"]
TOOLS = [*CHECKS, "maturin==1.16.0", "pyright==1.1.414", "ziglang==0.16.0"]
BESIDE = ["numpy>=1.23", "pytest>=8", "uvloop>=0.21"]
# What the long tests need beside it: the harness, and what runs notebooks.
LONG = ["ipykernel==7.4.0", "lm-eval==0.4.13", "nbclient==0.11.0"]
LARGEST = 15_000_000


def run(*words: object, **others: object) -> None:
    """Runs a program; whatever it ends with but 0 ends this one."""
    done = subprocess.run([str(word) for word in words], check=False, **others)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{pathlib.Path(str(words[0])).name} ended with {done.returncode}: {' '.join(map(str, words[1:]))}")


def step(what: str, began: float = time.monotonic()) -> None:
    """Prints what comes next."""
    print(f"-- {what} ({time.monotonic() - began:.0f} s)", flush=True)


def environment(name: str, packages: list[str]) -> pathlib.Path:
    """Returns the programs of an environment that is kept as long as it is to hold the same."""
    folder, wanted = KEPT / name, "\n".join([sys.version, *packages])
    note = folder / "holds"
    if not note.exists() or note.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
        note.write_text(wanted)
    return folder / "bin"


def built(tools: pathlib.Path, profile: str, manylinux: str | None) -> pathlib.Path:
    """Builds the wheel."""
    out = KEPT / "wheels"
    shutil.rmtree(out, ignore_errors=True)
    words = ["build", "--quiet", "--locked", "--profile", profile, "--strip", "--out", out]
    if manylinux:
        words += ["--zig", "--compatibility", f"manylinux_{manylinux}"]
    programs = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    run(tools / "maturin", *words, cwd=SOURCES, env=programs)
    [wheel] = out.glob("*.whl")
    return wheel


def looked_at(tools: pathlib.Path, wheel: pathlib.Path) -> None:
    """Refuses a wheel that would not run where its name says that it does."""
    name = wheel.name
    size = wheel.stat().st_size
    print(f"{name}: {size / 1e6:.1f} MB")
    if not re.fullmatch(r"demask-[0-9.]+-cp310-abi3-(manylinux|macosx)_\w+\.whl", name):
        sys.exit(f"the wheel is called {name}, expected the tag cp310-abi3 and the platform that it was linked for")
    if size > LARGEST:
        sys.exit(f"the wheel has {size} bytes, expected at most {LARGEST}")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        library = archive.extract("demask/_native.abi3.so", KEPT)
    missing = {"demask/__init__.py", "demask/py.typed", "demask/_native.pyi"} - held
    if missing:
        sys.exit(f"the wheel lacks {sorted(missing)}")
    linked(pathlib.Path(library))
    run(tools / "abi3audit", "--strict", wheel)


def linked(library: pathlib.Path) -> None:
    """Refuses a library that asks for libpython when it is loaded."""
    if not shutil.which("readelf"):
        return
    told = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", told)
    print(f"needs {', '.join(needed)}")
    if not needed or any("python" in one for one in needed):
        sys.exit("the extension is linked with libpython, which an interpreter need not have: see .cargo/config.toml")


def stubs(tools: pathlib.Path) -> None:
    """Refuses types of the native half that are not those of its code."""
    out = KEPT / "stubs"
    shutil.rmtree(out, ignore_errors=True)
    # Of a build with symbols, which is where the types are.
    run(tools / "maturin", "generate-stubs", "--quiet", "--locked", "--profile", "profiling", "--out", out, cwd=SOURCES)
    written, kept = out / "demask/_native.pyi", SOURCES / "demask/_native.pyi"
    if os.environ.get("DEMASK_BLESS"):
        shutil.copyfile(written, kept)
    if written.read_text() != kept.read_text():
        sys.exit(f"{kept.relative_to(ROOT)} is not what the code says: DEMASK_BLESS=1 python3 tools/python/wheel.py")


def installed(wheel: pathlib.Path, beside: list[str]) -> pathlib.Path:
    """Installs the wheel into a clean environment, and returns its interpreter."""
    python = environment("clean", beside) / "python"
    quiet = ["--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"]
    run(python, "-m", "pip", "install", *quiet, wheel)
    return python


def put_together(library: pathlib.Path, tools: pathlib.Path, beside: list[str]) -> pathlib.Path:
    """Puts a library that cargo has built beside the sources of the package, and returns an interpreter that finds them."""
    linked(library)
    folder = KEPT / "beside/demask"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES / "demask", folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    native = folder / "_native.abi3.so"
    shutil.copyfile(library, native)
    run(tools / "abi3audit", "--strict", "--assume-minimum-abi3", "3.10", native)
    programs = environment("beside-it", beside)
    found = subprocess.run([programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True)
    pathlib.Path(found.stdout.strip(), "demask.pth").write_text(f"{folder.parent}\n")
    return programs / "python"


def tested(python: pathlib.Path, tools: pathlib.Path, asked: argparse.Namespace, wheel: bool) -> None:
    """Checks the types of the package that an interpreter finds, and tests it."""
    for written in ("options.py", "receipt.py"):
        run(python, ROOT / "tools/python" / written, "--check")
    step("types")
    run(tools / "mypy", "--python-executable", python, "demask", "examples", cwd=SOURCES)
    if wheel:
        # Its package comes from npm's registry, which the short way does without.
        run(tools / "pyright", "--pythonpath", python, "--warnings", "examples", cwd=SOURCES)
    step("tests")
    known = {name: value for name, value in os.environ.items() if not name.startswith("DEMASK_")}
    if asked.demask:
        known["DEMASK_BINARY"] = str(pathlib.Path(asked.demask).resolve())
    chosen = [] if asked.long else ["-m", "not long"]
    run(python, "-m", "pytest", "-q", "--durations=8", *chosen, SOURCES / "tests", env=known, cwd=KEPT)


def main() -> None:
    """Does all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", metavar="BINARY")
    parser.add_argument("--library", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--profile", default="dist")
    parser.add_argument("--manylinux", metavar="VERSION")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only-build", action="store_true")
    asked = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    beside = [*BESIDE, *LONG] if asked.long else BESIDE
    step("tools")
    if asked.library:
        tools = environment("checks", CHECKS)
        step("library")
        tested(put_together(asked.library, tools, beside), tools, asked, wheel=False)
        return step("done")
    tools = environment("tools", TOOLS)
    step("wheel")
    wheel = built(tools, asked.profile, asked.manylinux)
    looked_at(tools, wheel)
    if not asked.only_build:
        step("types of the native half")
        stubs(tools)
        tested(installed(wheel, beside), tools, asked, wheel=True)
    step("done")
    print(wheel)


if __name__ == "__main__":
    main()
