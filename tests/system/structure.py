"""Whether every answer to a JSON schema is valid: random networks over a real vocabulary, many schemas, decoders and caches.

    python tests/system/structure.py target/release/demask --tokenizer DIR --schemas 'FOLDER/*.jsonl'

DIR has the files of a tokenizer (tokenizer.json, or vocab.json and merges.txt) with its config.json, as a checkpoint has
them. Lines of the files of schemas are objects with `name` and `schema`. Three small checkpoints are written with random
weights: LLaDA, SDAR and Qwen3. Each answers every schema, and the pairs of decoder and cache take turns. The answers are
read with Python's json and judged by the package `jsonschema`. The last line is a JSON object with counts by family and by
pair; the exit status is 1 if an answer was invalid.

A random network knows no language: its answers are as hostile as a vocabulary of 151,936 tokens allows.
"""

import argparse
import collections
import glob
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soak import Server, number, program

try:
    import jsonschema
except ImportError:
    sys.exit("the package jsonschema is missing, which judges the answers: pip install jsonschema")

HIDDEN, INNER, HEADS, HEAD, LAYERS = 64, 128, 4, 16, 2
# Positions of an answer at first, and where a schema needs more.
LENGTHS = (64, 192, 640)
# Requests at the same time.
AT_ONCE = 4
PATIENCE = 1200
WORDS = re.compile(r"at least (\d+)")


def sizes(config):
    """Those of a small network over the vocabulary of a released one."""
    return {
        "vocab_size": config["vocab_size"],
        "mask_token_id": config["mask_token_id"],
        "eos_token_id": config["eos_token_id"],
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "bfloat16",
    }


def qwen3(config):
    shape = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "num_hidden_layers": LAYERS,
        "hidden_act": "silu",
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    tensors = {"model.embed_tokens.weight": (config["vocab_size"], HIDDEN), "lm_head.weight": (config["vocab_size"], HIDDEN)}
    tensors["model.norm.weight"] = (HIDDEN,)
    for layer in range(LAYERS):
        own = {
            "input_layernorm": (HIDDEN,),
            "post_attention_layernorm": (HIDDEN,),
            "self_attn.q_norm": (HEAD,),
            "self_attn.k_norm": (HEAD,),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
            **{f"self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"},
        }
        tensors |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in own.items()}
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **sizes(config), **shape}, tensors


def sdar(config):
    own, tensors = qwen3(config)
    return own | {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "block_size": 4}, tensors


def llada(config):
    shape = {
        "d_model": HIDDEN,
        "mlp_hidden_size": INNER,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "n_layers": LAYERS,
        "embedding_size": config["vocab_size"],
        "max_sequence_length": 4096,
        "activation_type": "silu",
        "block_type": "llama",
        "layer_norm_type": "rms",
        "rope": True,
        "rope_theta": 500000.0,
        "include_bias": False,
        "include_qkv_bias": False,
        "weight_tying": False,
        "pad_token_id": config["eos_token_id"],
    }
    tensors = {f"model.transformer.{name}.weight": (config["vocab_size"], HIDDEN) for name in ("wte", "ff_out")}
    tensors["model.transformer.ln_f.weight"] = (HIDDEN,)
    for layer in range(LAYERS):
        own = {
            "attn_norm": (HIDDEN,),
            "ff_norm": (HIDDEN,),
            "ff_proj": (INNER, HIDDEN),
            "up_proj": (INNER, HIDDEN),
            "ff_out": (HIDDEN, INNER),
            **{name: (HIDDEN, HIDDEN) for name in ("q_proj", "k_proj", "v_proj", "attn_out")},
        }
        tensors |= {f"model.transformer.blocks.{layer}.{name}.weight": shape for name, shape in own.items()}
    return {"architectures": ["LLaDAModelLM"], "model_type": "llada", **sizes(config), **shape}, tensors


# Family, its checkpoint, its pairs of decoder and cache, and other options.
FAMILIES = {
    "llada": (
        llada,
        [
            ("static", "none"),
            ("threshold:tau=0.9", "dual"),
            ("factor", "prefix"),
            ("entropy_bounded", "freecache:block=16"),
            ("slowfast", "dual"),
            ("freedave:d=4", "prefix"),
            ("threshold:tau=0.3", "dllm"),
        ],
        {"block_length": 16},
    ),
    "sdar": (
        sdar,
        [
            ("static", "block"),
            ("threshold:tau=0.9", "block"),
            ("entropy_bounded", "block"),
            ("freedave:d=4", "block"),
            ("threshold:tau=0.1", "none"),
            ("factor", "block"),
        ],
        {},
    ),
    "qwen3": (qwen3, [("ar", "causal"), ("isd", "causal"), ("ar", "none")], {}),
}


def write_checkpoint(folder, family, tokenizer, seed):
    """Writes a checkpoint with random weights: norms of 1, embeddings and products small, a head that is sure of something."""
    config, tensors = FAMILIES[family][0](json.loads((tokenizer / "config.json").read_text()))
    folder.mkdir()
    for file in tokenizer.iterdir():
        if file.name not in ("config.json", "generation_config.json") and file.suffix != ".safetensors":
            shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(config))
    heads, start = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        heads[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, start + size]}
        start += size
    head = json.dumps(heads).encode()
    draws = random.Random(seed)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, shape in tensors.items():
            file.write(values(draws, name, shape))


def values(draws, name, shape):
    """Values of a tensor in bf16: 1 for norms, else uniform in exponent and mantissa."""
    if len(shape) == 1:
        return b"\x80\x3f" * shape[0]
    is_head = name in ("lm_head.weight", "model.transformer.ff_out.weight")
    exponent = 0x3E if is_head else 0x3D
    table = bytes(exponent | (byte & 0x80) for byte in range(256))
    random_bytes = bytearray(draws.randbytes(2 * shape[0] * shape[1]))
    random_bytes[1::2] = random_bytes[1::2].translate(table)
    return random_bytes


def schemas(pattern, count):
    """Names and schemas, `count` of them: those of all files in turns, from the first again where there are fewer."""
    found = []
    for path in sorted(glob.glob(pattern)):
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        found += [(line["name"], line["schema"]) for line in lines]
    if not found:
        sys.exit(f"no schemas at {pattern}: expected files with a JSON object a line")
    return [found[at % len(found)] for at in range(count or len(found))]


def answer(server, schema, pair, length, seed, more):
    """Status and body of a request."""
    body = {
        "messages": [{"role": "user", "content": "Answer in JSON."}],
        "max_tokens": length,
        "seed": seed,
        "temperature": seed % 3 / 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}},
        "diffusion": {"decoder": pair[0], "cache": pair[1], **more},
    }
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(), head)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def judged(server, name, schema, pair, seed, more):
    """Which end a request had: valid, unfinished, refused with its reason, or invalid with its text."""
    began = time.monotonic()
    for length in LENGTHS:
        status, body = answer(server, schema, pair, length, seed, more)
        if status == 200 or not WORDS.search(body["error"]["message"]):
            break
    seconds = time.monotonic() - began
    if status != 200:
        message = body["error"]["message"]
        return ("refused" if status == 400 else "broken"), f"{name}: {message}", seconds
    text = body["choices"][0]["message"]["content"]
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as error:
        return "invalid", f"{name}: {str(error)[:200]}: {text[:400]}", seconds
    return "valid", "", seconds


def family_of(asked, family, folder):
    """Counts of a family's answers, by pair, and what was refused or wrong."""
    checkpoint = folder / family
    write_checkpoint(checkpoint, family, asked.tokenizer, 1)
    _, pairs, more = FAMILIES[family]
    wanted = schemas(asked.schemas, asked.count)
    counts, told, times = collections.Counter(), [], []
    words = ["--model", str(checkpoint)]
    with Server(asked.demask, words) as server, ThreadPoolExecutor(AT_ONCE) as pool:

        def one(at):
            pair = pairs[at % len(pairs)]
            return pair, judged(server, *wanted[at], pair, at, more)

        for pair, (end, reason, seconds) in pool.map(one, range(len(wanted))):
            counts[f"{pair[0]} over {pair[1]}", end] += 1
            times.append(seconds)
            if end != "valid":
                told.append(f"{end}: {family}: {pair[0]} over {pair[1]}: {reason}")
    shutil.rmtree(checkpoint)
    ends = collections.Counter()
    for (_, end), count in counts.items():
        ends[end] += count
    by_pair = {f"{pair}: {end}": count for (pair, end), count in sorted(counts.items())}
    return {"ends": dict(ends), "by_pair": by_pair, "median_seconds": statistics.median(times)}, told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demask", type=program)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer with its config.json")
    parser.add_argument("--schemas", required=True, help="files with a schema a line")
    parser.add_argument("--count", type=number, default=0, help="answers of each family (default: one for each schema)")
    parser.add_argument("--only", help="families, with commas between", default=",".join(FAMILIES))
    asked = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in asked.only.split(","):
            found[family], told = family_of(asked, family, Path(folder))
            print("\n".join(told), file=sys.stderr, flush=True)
            print(family, json.dumps(found[family]), file=sys.stderr, flush=True)
    print(json.dumps(found))
    return int(any(of["ends"].get(bad) for of in found.values() for bad in ("invalid", "broken")))


if __name__ == "__main__":
    sys.exit(main())
