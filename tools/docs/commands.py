"""Runs the commands of the README, the tour and the guides, and compares what they print with what the pages say.

    python3 tools/docs/commands.py --demask target/release/demask [PAGE...]

A fence of `sh` is run by bash, all fences of a page one after the other in one empty folder that has the repository's
`demo` and `recipes`, with the binary on the path. A fence of `text` behind it is what was printed, standard error behind
standard output; `…` stands for anything, a line of it for any lines. A fence of another language behind a line
`<!-- file: NAME -->` is written to that file. What cannot be run has a line before the fence that says why:

    <!-- not run: REASON -->    or, of a program in another language,    <!-- tested by: FILE -->

A fence without a language, an indented block and a program that nobody runs are errors, so that no command escapes.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/index.md", "docs/tour.md"]
SECONDS = 300
MARK = re.compile(r"<!-- (not run|tested by|file): (.+) -->")


class Wrong(Exception):
    """What is wrong with a page, and where."""


def fences(page, text):
    """Yields (line, language, body, mark) of each fence of a page; mark is None or (kind, what)."""
    lines = text.split("\n")
    number, mark = 0, None
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            end = next((at for at in range(number + 1, len(lines)) if lines[at] == "```"), None)
            if end is None:
                raise Wrong(f"{page}:{number + 1}: the fence has no end")
            yield number + 1, line[3:].strip(), "\n".join(lines[number + 1 : end]), mark
            number, mark = end + 1, None
            continue
        found = MARK.fullmatch(line.strip())
        if line.startswith("    ") and (number == 0 or not lines[number - 1].strip()) and not command_of_the_tests(lines, number):
            raise Wrong(f"{page}:{number + 1}: an indented block: give it a fence with a language")
        mark = (found[1], found[2]) if found else mark if not line.strip() else None
        number += 1


def command_of_the_tests(lines, number):
    """The README's test command, which the gate reads and runs."""
    above = [line for line in lines[:number] if line.strip()]
    return bool(above) and above[-1] == "<!-- test command -->"


def pattern(expected):
    """What a page says was printed, as a regular expression."""
    parts = []
    for line in expected.split("\n"):
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(piece) for piece in line.split("…")) + r"\n")
    return re.compile("".join(parts))


def run(command, folder, environment):
    """The exit code of commands, and what they printed."""
    # What is to fail begins with "! ", which bash would not hold to it.
    held = re.sub(r"^! (.*)$", r"if \1; then echo 'this was to fail' >&2; exit 1; fi", command, flags=re.M)
    script = "set -euo pipefail\n" + held
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=SECONDS
        ).returncode
        out.seek(0), err.seek(0)
        return code, out.read(), err.read()


def check(page, environment):
    """Runs a page's commands; returns how many ran and how many are marked."""
    ran = marked = 0
    printed = None
    with tempfile.TemporaryDirectory() as folder:
        for name in ["demo", "recipes"]:
            os.symlink(ROOT / name, pathlib.Path(folder) / name)
        for line, language, body, mark in fences(page, (ROOT / page).read_text()):
            place = f"{page}:{line}"
            kind, what = mark or (None, None)
            if kind == "tested by" and not (ROOT / what).exists():
                raise Wrong(f"{place}: there is no {what}")
            if kind == "file":
                (pathlib.Path(folder) / what).write_text(body + "\n")
            elif kind is not None:
                marked, printed = marked + 1, None
            elif language == "sh":
                began = time.monotonic()
                code, out, err = run(body, folder, environment)
                print(f"{place}: {time.monotonic() - began:.1f} s", flush=True)
                if code != 0:
                    raise Wrong(f"{place}: exit code {code}\n{body}\n{out}{err}")
                ran, printed = ran + 1, out + err
            elif language == "text":
                if printed is not None and not matches(body, printed):
                    raise Wrong(f"{place}: expected\n{body}\nfound\n{printed}")
            else:
                raise Wrong(f"{place}: nobody runs this fence of {language or 'no language'}: mark it")
    return ran, marked


def matches(expected, printed):
    """Whether the lines of a page are what was printed, in its order, or each of them somewhere."""
    if pattern(expected).fullmatch(printed if printed.endswith("\n") or not printed else printed + "\n"):
        return True
    # Several commands: their standard errors come last here, and between the answers on the page.
    wanted = [line for line in expected.split("\n") if line != "…"]
    found = printed.split("\n")
    return all(any(pattern(line).fullmatch(other + "\n") for other in found) for line in wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--demask", required=True, help="the binary")
    parser.add_argument("pages", nargs="*", help="pages, from the repository on (all that are checked)")
    arguments = parser.parse_args()
    guides = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guides").glob("*.md"))
    binary = pathlib.Path(arguments.demask).resolve()
    if not binary.is_file():
        sys.exit(f"there is no {arguments.demask}: build it, or name it with --demask")
    environment = dict(os.environ, PATH=f"{binary.parent}:{os.environ['PATH']}", NO_COLOR="1")
    # What a shell has set must not decide what the pages show.
    for name in [name for name in environment if name.startswith("DEMASK_")]:
        del environment[name]
    ran = marked = 0
    try:
        for page in arguments.pages or PAGES + guides:
            here = check(page, environment)
            ran, marked = ran + here[0], marked + here[1]
    except Wrong as wrong:
        sys.exit(str(wrong))
    print(f"{ran} blocks ran, {marked} are marked with the reason why not")


if __name__ == "__main__":
    main()
