#!/usr/bin/env python3
"""Makes the GGUF test files with the format's own Python package, an implementation that is not ours.

    pip install gguf numpy
    python tools/gguf/make_fixture.py

Writes crates/tensor/tests/data/blocks.bin (random blocks of every format and what they mean) and
crates/checkpoint/tests/data/tiny.gguf (a random LLaDA of one layer with a tokenizer of bytes).
"""

import struct
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

ROOT = Path(__file__).resolve().parents[2]
# Where the blocks of each format have half-precision scales: random bits there could be infinite.
SCALES_AT = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.TQ1_0: [52],
    Type.TQ2_0: [64],
    Type.MXFP4: [],
}
BLOCKS = 4


def random_blocks(random, kind, count, size=0.1):
    """Returns blocks of any integers, whose scales are about as large as is said."""
    _, length = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (count, length), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        raw[:, at : at + 2] = random.normal(0, size, count).astype(np.float16).view(np.uint8).reshape(-1, 2)
    if kind is Type.MXFP4:
        # An exponent of 2 and a half.
        raw[:, 0] = 128 + round(np.log2(size)) + random.integers(-2, 3, count)
    if kind is Type.TQ2_0:
        # Three of the four integers mean something.
        for at in range(0, 8, 2):
            raw[:, :64] -= (raw[:, :64] >> at & 3 == 3).astype(np.uint8) << at
    return raw


def blocks(random):
    with open(ROOT / "crates/tensor/tests/data/blocks.bin", "wb") as out:
        for format in SCALES_AT:
            raw = random_blocks(random, format, BLOCKS)
            values = gguf.quants.dequantize(raw, format).astype("<f4")
            out.write(format.name.lower().encode().ljust(8) + struct.pack("<I", BLOCKS))
            out.write(raw.tobytes() + values.tobytes())


def byte_characters():
    """GPT-2's printable character of each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in plain)
    table = {byte: chr(byte) for byte in plain}
    return table | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


def tiny(random):
    hidden, ffn, heads, rows = 32, 64, 2, 288
    out = gguf.GGUFWriter(ROOT / "crates/checkpoint/tests/data/tiny.gguf", "llada")
    out.add_name("tiny")
    out.add_block_count(1)
    out.add_context_length(128)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(ffn)
    out.add_head_count(heads)
    out.add_head_count_kv(heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(500000.0)
    out.add_causal_attention(False)
    out.add_bool("diffusion.shift_logits", False)
    characters = byte_characters()
    tokens = [characters[byte] for byte in range(256)] + ["he", "ll", "hell", "hello", "Ġhello"]
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    specials = ["<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>", "<|eot_id|>"]
    tokens += specials
    kinds += [gguf.TokenType.CONTROL] * len(specials)
    tokens.append("<think>")
    kinds.append(gguf.TokenType.USER_DEFINED)
    while len(tokens) < rows:
        tokens.append(f"[PAD{len(tokens)}]")
        kinds.append(gguf.TokenType.UNUSED)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llada-moe")
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_token_merges(["h e", "l l", "he ll", "hell o", "Ġ hello"])
    out.add_bos_token_id(261)
    out.add_eos_token_id(262)
    out.add_pad_token_id(262)
    out.add_add_bos_token(True)
    out.add_chat_template("{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}")

    def matrix(name, rows, columns, format=Type.Q8_0):
        values = random.normal(0, 0.2, (rows, columns)).astype(np.float32)
        out.add_tensor(name, gguf.quants.quantize(values, format), raw_dtype=format)

    matrix("token_embd.weight", rows, hidden)
    for part in ["attn_q", "attn_k", "attn_v", "attn_output"]:
        matrix(f"blk.0.{part}.weight", hidden, hidden)
    matrix("blk.0.ffn_gate.weight", ffn, hidden, Type.Q4_0)
    matrix("blk.0.ffn_up.weight", ffn, hidden, Type.Q5_0)
    matrix("blk.0.ffn_down.weight", hidden, ffn)
    matrix("output.weight", rows, hidden)
    for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"]:
        out.add_tensor(f"{name}.weight", np.ones(hidden, dtype=np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    blocks(np.random.default_rng(1))
    tiny(np.random.default_rng(2))
