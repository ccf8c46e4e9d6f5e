"""Refuses cliffs in the kernels' machine code: a call, or a `vzeroupper` that does not end the function.

    python3 .ci/kernels.py target/release/demask

The binary is one for x86-64 or for 64-bit ARM; the tools of the one's machine that is not this one are looked for by their
usual prefix, `aarch64-linux-gnu-` or `x86_64-linux-gnu-`.

A closure or an array's `map` that the compiler does not put in its place becomes a call, around which all sums are stored
and loaded again: a kernel is then several times slower, and gives the same numbers. Looked at are the functions of
products that are compiled for wider registers; needs nm and objdump.
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


def machine_of(binary):
    with open(binary, "rb") as file:
        header = file.read(20)
    number = int.from_bytes(header[18:20], "little")
    if header[:4] != b"\x7fELF" or number not in MACHINES:
        sys.exit(f"{binary} is no program for x86-64 or 64-bit ARM on Linux")
    return MACHINES[number]


def kernels(machine, binary):
    """Start and length of each kernel, with its name."""
    names = subprocess.run(
        [machine.tool("nm"), "-C", "-S", "--defined-only", binary], check=True, capture_output=True, text=True
    ).stdout
    for line in names.splitlines():
        fields = line.split(maxsplit=3)
        if len(fields) == 4 and KERNEL.search(fields[3]) and not OTHERS.search(fields[3]):
            yield int(fields[0], 16), int(fields[1], 16), fields[3]


def instructions(machine, binary, start, length):
    command = [machine.tool("objdump"), "-dC", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + length}"]
    text = subprocess.run([*command, binary], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*[0-9a-f]+:\t(.*)$", text, re.MULTILINE)
    return [" ".join(instruction.split()) for instruction in found]


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
    binary = sys.argv[1]
    machine = machine_of(binary)
    count = wrong = 0
    for start, length, name in sorted(set(kernels(machine, binary))):
        code = instructions(machine, binary, start, length)
        if not any(machine.wide.search(instruction) for instruction in code):
            continue
        count += 1
        found = sorted(set(faults(machine, code)))
        if found:
            wrong += 1
            print(f"{name} at {start:#x}: {'; '.join(found[:3])}", file=sys.stderr)
    if count < 50:
        sys.exit(f"{binary} has {count} kernels with wide registers, expected 50 and more: is it stripped?")
    print(f"{count} kernels, {wrong} with a call or a vzeroupper inside")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
