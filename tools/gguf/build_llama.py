#!/usr/bin/env python3
"""Builds llama.cpp for this machine's own instructions, from the source package of llama-cpp-python, and prints its library.

    python3 tools/gguf/build_llama.py /tmp/llama
    python bench/run.py rivals file=FILE.gguf llama=/tmp/llama/build/bin/libllama.so

Needs a C++ compiler and PyPI, and takes some minutes. Words after the folder go to CMake: `-DGGML_NATIVE=OFF -DGGML_AVX512=ON
-DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON`
leave out AMX, for example. A second call goes on where the first ended.
"""

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

SOURCE = "llama-cpp-python==0.3.36"
# What the source package's metadata and the build need.
TOOLS = ["cmake==4.4.5", "ninja==1.13.2", "scikit-build-core==1.1.2"]
LEFT_OUT = ["TESTS", "EXAMPLES", "TOOLS", "SERVER"]


def run(*words):
    """Runs a program whose messages go to the standard error output; its failure ends this one."""
    status = subprocess.run([str(word) for word in words], stdout=sys.stderr).returncode
    if status:
        sys.exit(f"error: {Path(str(words[0])).name} failed with status {status}: {' '.join(map(str, words))}")


def source(folder, python):
    """The folder of llama.cpp's source, downloaded if it is not there."""
    found = sorted(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    if not found:
        run(python, "-m", "pip", "install", "-q", *TOOLS)
        run(python, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", folder, SOURCE)
        for package in folder.glob("llama_cpp_python-*.tar.gz"):
            with tarfile.open(package) as archive:
                archive.extractall(folder, filter="data")
        found = sorted(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    return found[0] if found else sys.exit(f"error: {SOURCE} has no folder vendor/llama.cpp: name another version in {__file__}")


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    tools = folder / "tools" / "bin"
    if not (tools / "python").exists():
        venv.create(folder / "tools", with_pip=True)
    place, build = source(folder, tools / "python"), folder / "build"
    settings = ["CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=ON", "GGML_NATIVE=ON", "LLAMA_CURL=OFF"]
    settings += [f"LLAMA_BUILD_{part}=OFF" for part in LEFT_OUT]
    # CMake looks for ninja on the path, and not beside itself.
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
    run(tools / "cmake", "-G", "Ninja", ninja, "-S", place, "-B", build, *(f"-D{setting}" for setting in settings), *sys.argv[2:])
    run(tools / "cmake", "--build", build, "--target", "llama")
    libraries = sorted(build.glob("bin/libllama.*"))
    print(libraries[0] if libraries else sys.exit(f"error: {build}/bin has no libllama"))


if __name__ == "__main__":
    main()
