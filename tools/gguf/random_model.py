#!/usr/bin/env python3
"""Writes a GGUF file of a real model's shape with random weights: what engines are timed on, where no weights can be had.

    pip install gguf numpy
    python tools/gguf/random_model.py qwen2.5-1.5b q8_0 FILE.gguf [--layers N]
    python tools/gguf/random_model.py small iq4_xs FILE.gguf

Its matrices have one format, or two in q4_k_m. `small` is a model of a megabyte or so, for tests of each format. Blocks are
random bits behind scales that keep the weights' spread near 0.02, so every engine that reads the format takes the file. Its
tokens are the 256 bytes and unused ones up to the real number of rows.
"""

import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from make_fixture import SCALES_AT, byte_characters, random_blocks

# Name: architecture, hidden width, layers, heads, heads of keys, width of the feed-forward part, rows, tied head, biases.
SHAPES = {
    "small": ("llada", 256, 2, 4, 2, 512, 288, False, False),
    "qwen2.5-0.5b": ("qwen2", 896, 24, 14, 2, 4864, 151936, True, True),
    "qwen2.5-1.5b": ("qwen2", 1536, 28, 12, 2, 8960, 151936, True, True),
    "qwen3-1.7b": ("qwen3", 2048, 28, 16, 8, 6144, 151936, True, False),
    "qwen3-8b": ("qwen3", 4096, 36, 32, 8, 12288, 151936, False, False),
    "llada-8b": ("llada", 4096, 32, 32, 32, 12288, 126464, False, False),
    "llada-moe-7b-a1b": ("llada-moe", 2048, 16, 16, 16, 1024, 157184, False, False),
}
# Architecture: number of experts, and how many of them a row meets. Their width is that of the feed-forward part.
EXPERTS = {"llada-moe": (64, 8)}
SPREAD = 0.02


# Formats by name: the two of a mixture, most matrices' and the finer one.
FORMATS = {kind.name.lower(): (kind, kind) for kind in SCALES_AT} | {"q4_k_m": (Type.Q4_K, Type.Q6_K)}
# Half of the largest integer, or of all that scales make of it: what minima are a multiple of, in units of the scale.
MINIMA = {Type.Q4_1: -7.5, Type.Q5_1: -15.5, Type.Q2_K: 1.5, Type.Q4_K: 7.5, Type.Q5_K: 15.5}


def scaled(random, kind, count, scale):
    """Returns blocks of any integers with this scale."""
    raw = random_blocks(random, kind, count, scale)
    for at, size in zip(SCALES_AT[kind], [scale, scale * MINIMA.get(kind, 0)]):
        raw[:, at : at + 2] = np.array([size], np.float16).view(np.uint8)
    return raw


def matrix(random, rows, columns, kind):
    """Returns the bytes of a matrix, a row of them for each of its rows."""
    size, _ = gguf.GGML_QUANT_SIZES[kind]
    # The scale that gives the spread, from what the scale 1 gives.
    sample = gguf.quants.dequantize(scaled(np.random.default_rng(3), kind, 256, 1.0), kind)
    raw = scaled(random, kind, rows * columns // size, SPREAD / float(sample.std()))
    return raw.reshape(rows, -1)


def finer(layer, layers):
    """Whether llama.cpp's recipe Q4_K_M takes six bits for a layer's values and down projection."""
    eighth = layers // 8
    return layer < eighth or layer >= layers - eighth or (layer - eighth) % 3 == 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int)
    asked = parser.parse_args()
    name, hidden, layers, heads, kv_heads, ffn, rows, tied, biases = SHAPES[asked.shape]
    layers = asked.layers or layers
    random = np.random.default_rng(1)
    out = gguf.GGUFWriter(asked.file, name)
    out.add_name(f"random {asked.shape}")
    out.add_block_count(layers)
    out.add_context_length(4096)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(ffn)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(1e6)
    experts, chosen = EXPERTS.get(name, (0, 0))
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(chosen)
        out.add_expert_feed_forward_length(ffn)
    if name.startswith("llada"):
        out.add_causal_attention(False)
        out.add_bool("diffusion.shift_logits", False)
        out.add_mask_token_id(258)
    characters = byte_characters()
    tokens = [characters[byte] for byte in range(256)] + ["<|im_start|>", "<|im_end|>", "<|mdm_mask|>", "he"]
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL]
    kinds += [gguf.TokenType.UNUSED] * (rows - len(tokens))
    tokens += [f"[PAD{index}]" for index in range(len(tokens), rows)]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_token_merges(["h e"])
    out.add_bos_token_id(256)
    out.add_eos_token_id(257)
    out.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    plain, fine = FORMATS[asked.format]
    size, _ = gguf.GGML_QUANT_SIZES[plain]
    if hidden % size or ffn % size:
        raise SystemExit(f"{asked.shape} has rows of {hidden} weights, which blocks of {size} do not divide: take q8_0")

    def add(name, rows, columns, kind):
        out.add_tensor(name, matrix(random, rows, columns, kind), raw_dtype=kind)

    def ones(name, count):
        out.add_tensor(name, np.ones(count, dtype=np.float32))

    add("token_embd.weight", rows, hidden, fine if tied else plain)
    ones("output_norm.weight", hidden)
    if not tied:
        add("output.weight", rows, hidden, fine)
    head = hidden // heads
    for layer in range(layers):
        kind = fine if finer(layer, layers) else plain
        prefix = f"blk.{layer}"
        for part, columns in [("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)]:
            add(f"{prefix}.attn_{part}.weight", columns, hidden, kind if part == "v" else plain)
            if biases:
                out.add_tensor(f"{prefix}.attn_{part}.bias", np.zeros(columns, dtype=np.float32))
        add(f"{prefix}.attn_output.weight", hidden, heads * head, plain)
        for part, width, length in [("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)]:
            of_part = kind if part == "down" else plain
            if experts:
                data = matrix(random, experts * width, length, of_part).reshape(experts, width, -1)
                out.add_tensor(f"{prefix}.ffn_{part}_exps.weight", data, raw_dtype=of_part)
            else:
                add(f"{prefix}.ffn_{part}.weight", width, length, of_part)
        if experts:
            router = random.normal(0, SPREAD, (experts, hidden)).astype(np.float32)
            out.add_tensor(f"{prefix}.ffn_gate_inp.weight", router)
        if experts or name == "qwen3":
            ones(f"{prefix}.attn_q_norm.weight", head)
            ones(f"{prefix}.attn_k_norm.weight", head)
        ones(f"{prefix}.attn_norm.weight", hidden)
        ones(f"{prefix}.ffn_norm.weight", hidden)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
