"""Counts the words of the book, and the patterns that make its sentences hard to read.

    python3 tools/docs/words.py           the counts, and exit status 1 above a limit
    python3 tools/docs/words.py --pages   each page on a line, too

The book is README.md and the pages of docs/SUMMARY.md outside of its parts Records and Specifications. Code, addresses and
tables of numbers are not counted. Limits are per 10,000 words, but for the words themselves. Item documentation is counted
by lines: `///` and `//!` below crates/.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ("# Records", "# Specifications")
WORDS = 30_000
# At least so often, and at most.
LEAST = {"you, your": (r"\byou(rs?)?\b", 60)}
MOST = {"semicolons": (r";", 20)}
# Together at most 5.
HARD = {
    "behind": r"\bbehind\b",
    "stands": r"\b(stands?|stood)\b",
    "beside": r"\bbeside\b",
    "anew": r"\banew\b",
    "whoever": r"\bwhoever\b",
    "What ...": r"(?:^|[.!] )What\b(?![^.\n]*\?)",
}
HARD_MOST = 5
# Lines of item documentation at most.
ITEMS = {
    "noun clauses": (r"\b(what is|what are|what was|what a|what the|what it|that of|those of what|whoever)\b", 40),
    "behind": (r"\bbehind\b", 10),
}


def book():
    """Pages of the book."""
    pages, counted = [ROOT / "README.md"], True
    for line in (ROOT / "docs/SUMMARY.md").read_text().splitlines():
        if line.startswith("# "):
            counted = line not in RECORDS
        found = re.search(r"\]\((.+\.md)\)", line)
        if found and counted:
            pages.append(ROOT / "docs" / found[1])
    return pages


def prose(text):
    """A page without code, comments, addresses and tables of numbers."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.S | re.M)
    text = re.sub(r"<!-- eval table -->.*?<!-- end of eval table -->", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->|<a id=.*?</a>", "", text, flags=re.S)
    lines = [line for line in text.split("\n") if not line.startswith("    ")]
    lines = [line for line in lines if not re.match(r"^ *\|[-:| ]+\|$", line) and not is_numbers(line)]
    text = "\n".join(line.replace("|", " ") if line.lstrip().startswith("|") else line for line in lines)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))


def is_numbers(line):
    """Whether a line is the row of a table of numbers: most of its cells have no word of letters."""
    if not line.lstrip().startswith("|"):
        return False
    cells = [re.sub(r"`[^`]*`", "", cell).strip() for cell in line.strip().strip("|").split("|")]
    plain = [cell for cell in cells if not re.search(r"[A-Za-z]{4,}", cell)]
    return len(cells) > 3 and 2 * len(plain) > len(cells)


def of_items():
    """Lines of item documentation."""
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        yield from (line.strip() for line in path.read_text().splitlines() if line.strip().startswith(("///", "//!")))


def main():
    texts = {path: prose(path.read_text()) for path in book()}
    words = sum(len(text.split()) for text in texts.values())
    share = lambda pattern: 1e4 * sum(len(re.findall(pattern, text, re.I | re.M)) for text in texts.values()) / words
    if "--pages" in sys.argv:
        for path, text in texts.items():
            hard = sum(len(re.findall(pattern, text, re.I | re.M)) for pattern in HARD.values())
            print(f"{len(text.split()):6} words, {text.count(';'):3} semicolons, {hard:3} hard: {path.relative_to(ROOT)}")
    rows = [("words of the book", words, f"at most {WORDS}", words <= WORDS)]
    rows += [(name, share(of), f"at least {least}", share(of) >= least) for name, (of, least) in LEAST.items()]
    rows += [(name, share(of), f"at most {most}", share(of) <= most) for name, (of, most) in MOST.items()]
    hard = sum(share(of) for of in HARD.values())
    rows += [(", ".join(HARD), hard, f"at most {HARD_MOST}", hard <= HARD_MOST)]
    items = list(of_items())
    for name, (of, most) in ITEMS.items():
        found = sum(bool(re.search(of, line, re.I)) for line in items)
        rows.append((f"item documentation: {name}", found, f"at most {most}", found <= most))
    for name, found, limit, holds in rows:
        print(f"{'   ' if holds else '!! '}{name}: {found:.1f}, {limit}")
    sys.exit(not all(holds for *_, holds in rows))


if __name__ == "__main__":
    main()
