#!/usr/bin/env python3
"""Replaces mentions of the specifications ("specification caches, section 2.2", "trap 7", "I8 of specification
flashdlm") in comments and strings of Rust and CUDA sources by references of the form specs/caches.md#2.2.
Run again after merges: what is replaced already is left alone. Prints what it could not read."""
import re, subprocess, sys

NAMES = "models|caches|freedave|flashdlm"
ITEM = r"(?:\d+(?:\.\d+)*(?![\d])|[ITFKSXG]\d+)"
SEP = r"(?:,? and |, |: )"
TAIL = rf"(?:(?:,? (?:sections?|traps?) |: |, | ){ITEM}(?:{SEP}(?:(?:section|trap) )?{ITEM})*)"
# What follows a name: sections, then perhaps a trap, then perhaps labels.
AFTER = rf"(?:{TAIL})?(?:(?:, (?:and )?)?traps? \d+)?(?:[:,] (?:[ITFKSXG]\d+(?:, (?:and )?| and )?)+)?"
ONE = rf"(?:{NAMES})\b{AFTER}"
MENTION = re.compile(
    rf"(?P<labels>(?:[ITFKSXG]\d+(?:, | and ))*[ITFKSXG]\d+ of )?\b[Ss]pecifications? (?P<refs>{ONE}(?:(?:; |, and |, | and ){ONE})*)")
BY_HAND = [
    ("(section 2.7): where", "(specs/flashdlm.md#2.7): where"),
    ("averages of its table (X9); and the published table of section 2.6, in its own convention (T8).",
     "averages of its table (specs/caches.md#X9); and the published table of specs/caches.md#2.6, in its own convention (specs/caches.md#T8)."),
    ("The table of section 7: logits", "The table of specs/caches.md#7: logits"),
    ("The specification states three digits.", "specs/freedave.md#I17 states three digits."),
    ("The specification's own words for one canvas", "What specs/caches.md#5 says of one canvas"),
    ("The examples of the specification: thresholds", "The examples of specs/caches.md#3.1: thresholds"),
    ("(specification, section 4.2)", "(specs/freedave.md#4.2)"),
    ("specs/models.md#4.5 and specs/models.md#trap-16", "specs/models.md#trap-16"),
    ("specs/flashdlm.md#2.3, D4 to D6", "specs/flashdlm.md#2.3 and specs/flashdlm.md#5"),
    ("Dream's how probably each one is (section 1.3).", "Dream's how probably each one is (specs/caches.md#1.3)."),
]

def joined(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]

def replace(match):
    out = []
    if match["labels"]:
        name = re.match(NAMES, match["refs"])[0]
        out = [f"specs/{name}.md#{label}" for label in re.findall(r"[ITFKSXG]\d+", match["labels"])]
        return joined(out)
    for one in re.finditer(rf"(?P<name>{NAMES})\b(?P<tail>{AFTER})", match["refs"]):
        tail = one["tail"]
        labels = re.findall(r"\b[ITFKSXG]\d+", tail)
        traps = re.findall(r"traps? (\d+)", tail)
        rest = re.sub(r"traps? \d+", "", tail)
        sections = [] if labels else re.findall(r"(?<![\d.A-Z])\d+(?:\.\d+)*", rest)
        ids = sections + [f"trap-{trap}" for trap in traps] + labels
        out += [f"specs/{one['name']}.md#{i}" for i in ids] or [f"specs/{one['name']}.md"]
    return joined(out)

def wrap(prefix, text, width=120):
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(prefix) + 1 + len(line) + 1 + len(word) > width:
            lines.append(f"{prefix} {line}")
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(f"{prefix} {line}")
    return lines

def changed(text):
    new = MENTION.sub(replace, text)
    for old, put in BY_HAND:
        new = new.replace(old, put)
    return new

COMMENT = re.compile(r"^(\s*(?://!|///|//|#(?![!\[])))(?: (.*))?$")

def file(path):
    lines = open(path).read().split("\n")
    out, i = [], 0
    while i < len(lines):
        match = COMMENT.match(lines[i])
        if not match or not match[2] or re.match(r"\s|[|`]", match[2]):
            out.append(changed(lines[i])); i += 1; continue
        prefix, block = match[1], [match[2]]
        j = i + 1
        while j < len(lines):
            nxt = COMMENT.match(lines[j])
            if not nxt or nxt[1] != prefix or not nxt[2] or re.match(r"\s|[|`*#-]|\d+\. ", nxt[2]):
                break
            block.append(nxt[2]); j += 1
        text = " ".join(block)
        new = changed(text)
        out += lines[i:j] if new == text else wrap(prefix, new)
        i = j
    new = "\n".join(out)
    if new != "\n".join(lines):
        open(path, "w").write(new)

paths = subprocess.run(["git", "ls-files", "crates", "docs/invariants.md", "docs/adding.md"], capture_output=True, text=True).stdout.split()
paths = [p for p in paths if p.endswith((".rs", ".cu", ".cuh", ".h", ".c")) and not p.endswith(("/tests/pages.rs", "/invariants_list.rs"))]
for path in paths:
    file(path)
for path in paths:
    for number, line in enumerate(open(path), 1):
        if re.search(r"[Ss]pecification|(?<!the paper)\bsection \d|\btrap \d", line):
            print(f"{path}:{number}: {line.strip()}")
