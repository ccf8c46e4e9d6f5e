"""Refuses cliffs in the kernels' machine code: a call, or a `vzeroupper` that does not end the function.

    python3 .ci/kernels.py target/release/deps/libdemask_cpu-HASH.rlib

The library, or a program with its symbols, is one for x86-64 or for 64-bit ARM; the tools of the one's machine that is not
this one are looked for by their usual prefix, `aarch64-linux-gnu-` or `x86_64-linux-gnu-`.

A closure or an array's `map` that the compiler does not put in its place becomes a call, around which all sums are stored
and loaded again: a kernel is then several times slower, and gives the same numbers. Looked at are the functions of
products that are compiled for wider registers; needs objdump.
"""

import platform
import re
import subprocess
import sys
from dataclasses import dataclass

# Where they are: their names begin with the crate and end with one of these, or lie in a type's own function.
KERNEL = re.compile(r"demask_cpu::linear::.*(tile|compiled|prepare|unpack\w*|run)$")
# What is no kernel: weights are packed once.
OTHERS = re.compile(r"::pack::")
# What ends the process, and is never called where all is right.
PANICS = re.compile(r"core::panicking|panic_|slice_index|slice_.*_fail|unwrap_failed|expect_failed")
# What may stand between the last `vzeroupper` and the end: registers come back.
ENDING = re.compile(r"^(pop|add .*%rsp|lea .*%rsp|mov .*%rsp|leave|nop)")


@dataclass(frozen=True)
class Machine:
    """How code of an architecture looks."""

    name: str
    # What an instruction names that is compiled for wider registers than an architecture's oldest.
    wide: re.Pattern
    call: re.Pattern

    def tool(self, name):
        return name if platform.machine() == self.name else f"{self.name}-linux-gnu-{name}"


# By the number in the file's header.
MACHINES = {
    62: Machine("x86_64", re.compile(r"%[yzt]mm\d"), re.compile(r"call")),
    183: Machine("aarch64", re.compile(r"\bv\d+\.(4s|2d|8h|16b)"), re.compile(r"blr?\s")),
}


def machine_of(library):
    """The architecture of a program, or of the first object in a library."""
    with open(library, "rb") as file:
        content = file.read()
    start = content.find(b"\x7fELF")
    number = int.from_bytes(content[start + 18 : start + 20], "little") if start >= 0 else 0
    if number not in MACHINES:
        sys.exit(f"{library} is no program or library for x86-64 or 64-bit ARM on Linux")
    return MACHINES[number]


def functions(machine, library):
    """Each function's name, with its instructions; a call has the name that the linker puts in."""
    command = [machine.tool("objdump"), "-drC", "--no-show-raw-insn", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    name, code = None, []
    for line in text.splitlines():
        if header := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            yield name, code
            name, code = header[1], []
        elif relocation := re.match(r"^\s+[0-9a-f]+: R_\w+\t(.*)$", line):
            if code:
                code[-1] += f" {relocation[1]}"
        elif instruction := re.match(r"^\s*[0-9a-f]+:\t(.*)$", line):
            code.append(" ".join(instruction[1].split()))
    yield name, code


def is_kernel(name):
    return name and KERNEL.search(name) and not OTHERS.search(name)


def faults(machine, code):
    """What is wrong with a kernel's instructions."""
    for index, instruction in enumerate(code):
        if machine.call.match(instruction) and not PANICS.search(instruction):
            yield instruction
        if instruction == "vzeroupper":
            rest = (following for following in code[index + 1 :] if not ENDING.match(following))
            ending = next(rest, "nothing")
            if not ending.startswith(("ret", "jmp")):
                yield f"vzeroupper before {ending}"


def main():
    library = sys.argv[1]
    machine = machine_of(library)
    count = wrong = 0
    for name, code in functions(machine, library):
        if not is_kernel(name) or not any(machine.wide.search(instruction) for instruction in code):
            continue
        count += 1
        found = sorted(set(faults(machine, code)))
        if found:
            wrong += 1
            print(f"{name}: {'; '.join(found[:3])}", file=sys.stderr)
    if count < 50:
        sys.exit(f"{library} has {count} kernels with wide registers, expected 50 and more: is it stripped?")
    print(f"{count} kernels, {wrong} with a call or a vzeroupper inside")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
