"""Refuses cliffs in the kernels' machine code: a call, or a `vzeroupper` that does not end the function.

    python3 .ci/kernels.py target/release/demask

A closure or an array's `map` that the compiler does not put in its place becomes a call, around which all sums are stored
and loaded again: a kernel is then several times slower, and gives the same numbers. Looked at are the functions of
products that are compiled for wider registers; needs nm and objdump.
"""

import re
import subprocess
import sys

# Where they are: their names begin with the crate and end with one of these, or lie in a type's own function.
KERNEL = re.compile(r"demask_cpu::linear::.*(tile|compiled|prepare|unpack\w*|run)$")
# What is no kernel: weights are packed once.
OTHERS = re.compile(r"::pack::")
# What ends the process, and is never called where all is right.
PANICS = re.compile(r"core::panicking|panic_|slice_index|slice_.*_fail|unwrap_failed|expect_failed")
WIDE = re.compile(r"%[yzt]mm\d")
# What may stand between the last `vzeroupper` and the end: registers come back.
ENDING = re.compile(r"^(pop|add .*%rsp|lea .*%rsp|mov .*%rsp|leave|nop)")


def kernels(binary):
    """Start and length of each kernel, with its name."""
    names = subprocess.run(
        ["nm", "-C", "-S", "--defined-only", binary], check=True, capture_output=True, text=True
    ).stdout
    for line in names.splitlines():
        fields = line.split(maxsplit=3)
        if len(fields) == 4 and KERNEL.search(fields[3]) and not OTHERS.search(fields[3]):
            yield int(fields[0], 16), int(fields[1], 16), fields[3]


def instructions(binary, start, length):
    command = ["objdump", "-dC", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + length}"]
    text = subprocess.run([*command, binary], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*[0-9a-f]+:\t(.*)$", text, re.MULTILINE)
    return [" ".join(instruction.split()) for instruction in found]


def faults(code):
    """What is wrong with a kernel's instructions."""
    for index, instruction in enumerate(code):
        if instruction.startswith("call") and not PANICS.search(instruction):
            yield instruction
        if instruction == "vzeroupper":
            rest = (following for following in code[index + 1 :] if not ENDING.match(following))
            ending = next(rest, "nothing")
            if not ending.startswith(("ret", "jmp")):
                yield f"vzeroupper before {ending}"


def main():
    binary = sys.argv[1]
    count = wrong = 0
    for start, length, name in sorted(set(kernels(binary))):
        code = instructions(binary, start, length)
        if not any(WIDE.search(instruction) for instruction in code):
            continue
        count += 1
        found = sorted(set(faults(code)))
        if found:
            wrong += 1
            print(f"{name} at {start:#x}: {'; '.join(found[:3])}", file=sys.stderr)
    if count < 50:
        sys.exit(f"{binary} has {count} kernels with wide registers, expected 50 and more: is it stripped?")
    print(f"{count} kernels, {wrong} with a call or a vzeroupper inside")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
