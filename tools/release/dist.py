"""Makes what a release carries for one kind of machine: for each program an archive with it, its manual pages, completions
and licences, and a list of what it is made of; and the SHA-256 of all.

    python3 tools/release/dist.py                                       this machine, everything
    python3 tools/release/dist.py --target x86_64-unknown-linux-musl    static, for any Linux; on the CPU alone
    python3 tools/release/dist.py --target aarch64-unknown-linux-gnu    needs aarch64-linux-gnu-gcc
    python3 tools/release/dist.py --twice                               builds here and in a clone elsewhere, and compares the bytes

Archives lie under target/release-archives. Paths of this machine are left out of the programs, and times of the archives
are those of the commit, so that the same commit, toolchain and target give the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = ROOT / "target" / "release-archives"
# The programs, and the folders of their packages. Each has an archive of its own: most people want the first alone.
PROGRAMS = {"demask": "cli", "demask-lab": "lab"}
# The tool of the list of parts.
CYCLONEDX = "0.5.9"
# Compilers of C for other targets. They link as well, but for musl: rustc brings what a static program begins with, and
# Debian's musl-gcc links one that asks for musl's loader and crashes.
COMPILERS = {"aarch64-unknown-linux-gnu": "aarch64-linux-gnu-gcc", "x86_64-unknown-linux-musl": "musl-gcc"}


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def host():
    return re.search(r"host: (\S+)", told("rustc", "-vV")).group(1)


def build(target, source, folder):
    """Builds the programs from a folder of sources into another one, and returns them."""
    registry = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    remaps = [f"--remap-path-prefix={source}=demask", f"--remap-path-prefix={registry}=cargo"]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(folder), CARGO_ENCODED_RUSTFLAGS="\x1f".join(remaps))
    compiler = COMPILERS.get(target)
    if compiler and target != host() and shutil.which(compiler):
        environment[f"CC_{target}"] = compiler
        if "musl" not in target:
            environment[f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER"] = compiler
    command = ["cargo", "build", "--profile", "dist", "--locked", "--target", target]
    for package in PROGRAMS.values():
        command += ["-p", f"demask-{package}"]
    subprocess.run(command + features(target), check=True, cwd=source, env=environment)
    end = ".exe" if "windows" in target else ""
    return [folder / target / "dist" / (name + end) for name in PROGRAMS]


def features(target):
    """A static program cannot load a GPU's driver."""
    return ["--no-default-features"] if "musl" in target else []


def sbom(program, target):
    """What a program is made of: every dependency with its version, licence and checksum, as CycloneDX JSON."""
    tool = ROOT / "target" / "cyclonedx"
    if not list(tool.glob("bin/cargo-cyclonedx*")):
        told("cargo", "install", "cargo-cyclonedx", "--version", CYCLONEDX, "--locked", "--root", str(tool))
    # One for each package of the workspace, beside its manifest: that of the program is kept.
    name, folder = f"{target}.cdx", f"crates/{PROGRAMS[program.stem]}"
    command = [str(next(tool.glob("bin/cargo-cyclonedx*"))), "cyclonedx", "--manifest-path", f"{folder}/Cargo.toml"]
    command += ["--format", "json", "--spec-version", "1.5", "--no-build-deps", "--target", target, "--override-filename", name]
    command += features(target)
    # Without times and random numbers; with paths of this machine, which are taken out.
    environment = dict(os.environ, SOURCE_DATE_EPOCH=told("git", "log", "-1", "--format=%ct"))
    try:
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        return (ROOT / folder / f"{name}.json").read_text().replace(ROOT.as_uri(), "file:///demask") + "\n"
    finally:
        for made in ROOT.glob(f"crates/*/{name}.json"):
            made.unlink()


def pages(program, folder):
    """Manual pages and completions, which the program writes itself: only on a machine that runs it."""
    (folder / "man").mkdir()
    subprocess.run([program, "man", "--out", folder / "man"], check=True)
    (folder / "completions").mkdir()
    for shell in ("bash", "fish", "zsh"):
        text = subprocess.run([program, "completions", shell], check=True, capture_output=True).stdout
        (folder / "completions" / f"{program.stem}.{shell}").write_bytes(text)


def archive(folder, path, when):
    """A tar of a folder in which nothing is of this machine."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in sorted(folder.rglob("*")):
            info = tar.gettarinfo(entry, arcname=str(pathlib.Path(path.name.removesuffix(".tar.gz")) / entry.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = when
            info.mode = 0o755 if entry.is_dir() or entry.parent == folder and entry.name.startswith("demask") else 0o644
            if entry.is_file():
                with open(entry, "rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=when) as packed:
        packed.write(whole.getvalue())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def version():
    with open(ROOT / "Cargo.toml", "rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


def pack(target, program, made):
    """Packs a program and what goes with it into a folder; returns the archive and its list of parts."""
    name = f"{program.stem}-{version()}-{target}"
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copy2(program, folder / program.name)
        for file in ("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT"):
            shutil.copy2(ROOT / file, folder / file)
        if target == host() or target == "x86_64-unknown-linux-musl" and host().startswith("x86_64-unknown-linux"):
            pages(program, folder)
        list_of_parts = made / f"{name}.cdx.json"
        list_of_parts.write_text(sbom(program, target))
        packed = made / f"{name}.tar.gz"
        archive(folder, packed, int(told("git", "log", "-1", "--format=%ct")))
    return packed, list_of_parts


def make(target):
    files = []
    for program in build(target, ROOT, ROOT / "target"):
        files += pack(target, program, MADE)
        print(f"{target}: {program.name} {program.stat().st_size:,} bytes, archive {files[-2].stat().st_size:,}")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (MADE / f"demask-{version()}-{target}.sha256").write_text(sums)
    print(sums, end="")


def twice(target):
    """Builds and packs the commit here and in a clone in another folder; returns 1 where programs or archives differ."""
    if told("git", "status", "--porcelain", "--untracked-files=no"):
        sys.exit("files differ from the commit: commit them, then build twice")
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        source = place / "another-folder" / "demask"
        told("git", "clone", "--quiet", str(ROOT), str(source))
        builds = [build(target, ROOT, ROOT / "target"), build(target, source, place / "target")]
        differs = 0
        for programs in zip(*builds):
            archives = [pack(target, program, place / str(number))[0] for number, program in enumerate(programs)]
            for what, files in (("program", programs), ("archive", archives)):
                found = [digest(file) for file in files]
                same = found[0] == found[1]
                differs |= not same
                outcome = "the same" if same else "not the same"
                print(f"{target}: {programs[0].name}, {what} {found[0]} and {found[1]}: {outcome}")
    return int(differs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=None, help="kind of machine (this one)")
    parser.add_argument("--twice", action="store_true", help="build twice and compare")
    options = parser.parse_args()
    target = options.target or host()
    return twice(target) if options.twice else make(target)


if __name__ == "__main__":
    sys.exit(main())
