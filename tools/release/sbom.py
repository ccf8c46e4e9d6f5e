"""What a binary is made of: every dependency with its version, licence and checksum, as CycloneDX JSON.

    python3 tools/release/sbom.py --package demask-cli > demask.cdx.json
    python3 tools/release/sbom.py --package demask-cli --target aarch64-unknown-linux-gnu --no-default-features
    python3 tools/release/sbom.py --check

`--check` writes nothing: it compares the licences of all dependencies with those that `deny.toml` allows, and ends with
status 1 where one is not. Only `cargo metadata` is asked, so nothing is built. The same tree gives the same bytes.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def metadata(options):
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    if options.target:
        command += ["--filter-platform", options.target]
    if options.no_default_features:
        command.append("--no-default-features")
    if options.features:
        command += ["--features", options.features]
    command += ["--manifest-path", str(manifest(options.package))]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def manifest(package):
    """The manifest of a package of this workspace; features are those of the package that stands there."""
    if package is None:
        return ROOT / "Cargo.toml"
    for path in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        with open(path, "rb") as file:
            if tomllib.load(file)["package"]["name"] == package:
                return path
    sys.exit(f"no package {package} in {ROOT / 'crates'}")


def reached(tree, package):
    """Packages that a binary of this package is linked from; those that only build or test it are left out."""
    nodes = {node["id"]: node for node in tree["resolve"]["nodes"]}
    todo = [found["id"] for found in tree["packages"] if found["name"] == package and found["source"] is None]
    seen = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for dependency in nodes[name]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    return seen


def checksums():
    with open(ROOT / "Cargo.lock", "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(entry["name"], entry["version"]): entry.get("checksum") for entry in packages}


def licence(package):
    """The expression as it is written now: a slash was once an `OR`."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "")


def component(package, sums):
    made = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{package['name']}@{package['version']}",
        "name": package["name"],
        "version": package["version"],
        "purl": f"pkg:cargo/{package['name']}@{package['version']}",
    }
    if licence(package):
        made["licenses"] = [{"expression": licence(package)}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return made


def document(tree, package):
    sums, wanted = checksums(), reached(tree, package)
    packages = sorted((it for it in tree["packages"] if it["id"] in wanted), key=lambda it: (it["name"], it["version"]))
    subject = next(it for it in packages if it["name"] == package)
    references = {it["id"]: f"pkg:cargo/{it['name']}@{it['version']}" for it in packages}
    nodes = {node["id"]: node for node in tree["resolve"]["nodes"]}
    depends = [
        {
            "ref": references[it["id"]],
            "dependsOn": sorted(references[dep["pkg"]] for dep in nodes[it["id"]]["deps"] if dep["pkg"] in references),
        }
        for it in packages
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component(subject, sums), "type": "application"}},
        "components": [component(it, sums) for it in packages if it is not subject],
        "dependencies": depends,
    }


def allowed(expression, list_of_names):
    """Whether licences of a list satisfy an expression: one of each `OR`, all of each `AND`."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression)
    words, at = [], 0
    while at < len(tokens):
        if at + 2 < len(tokens) and tokens[at + 1] == "WITH":
            words.append(str(" ".join(tokens[at : at + 3]) in list_of_names))
            at += 3
        else:
            known = {"(": "(", ")": ")", "OR": "or", "AND": "and"}
            words.append(known.get(tokens[at]) or str(tokens[at] in list_of_names))
            at += 1
    return bool(words) and truth(words)


def truth(words):
    """The value of `True`, `False`, `and`, `or` and brackets; `and` binds tighter."""

    def either(at):
        value, at = both(at)
        while at < len(words) and words[at] == "or":
            other, at = both(at + 1)
            value = value or other
        return value, at

    def both(at):
        value, at = one(at)
        while at < len(words) and words[at] == "and":
            other, at = one(at + 1)
            value = value and other
        return value, at

    def one(at):
        if words[at] != "(":
            return words[at] == "True", at + 1
        value, at = either(at + 1)
        return value, at + 1

    return either(0)[0]


def check(tree):
    with open(ROOT / "deny.toml", "rb") as file:
        deny = tomllib.load(file)["licenses"]
    excepted = {(it["crate"], name) for it in deny.get("exceptions", []) for name in it["allow"]}
    wrong = []
    for package in tree["packages"]:
        own = deny["allow"] + [name for crate, name in excepted if crate == package["name"]]
        if package["source"] and not allowed(licence(package), own):
            wrong.append(f"{package['name']} {package['version']}: {package['license']}")
    foreign = sum(1 for package in tree["packages"] if package["source"])
    print(f"{foreign} dependencies, {len(wrong)} with a licence that deny.toml does not allow", *wrong, sep="\n  ")
    return int(bool(wrong))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", help="the package of the binary")
    parser.add_argument("--target", help="the machine that the binary is for (all of them)")
    parser.add_argument("--features", help="features beside the default ones")
    parser.add_argument("--no-default-features", action="store_true", help="without those")
    parser.add_argument("--check", action="store_true", help="compare licences with deny.toml")
    options = parser.parse_args()
    if options.check:
        return check(metadata(options))
    if not options.package:
        parser.error("--package is needed, or --check")
    json.dump(document(metadata(options), options.package), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
