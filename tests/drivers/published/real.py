#!/usr/bin/env python3
"""real.py TOKENS MODEL - computes the logits of SmolLM2-135M-Instruct's GGUF file after 20 prompts in double precision. Only the
driver TOKENS, which encodes the prompts, belongs to the library. Writes tests/data/published/smollm2.json for smollm2.sh: the
tokens of each prompt, the spread of the logits after the last token, and the five largest ones. Needs numpy."""

import json
import math
import os
import struct
import subprocess
import sys

import numpy as np

from prompts import PROMPTS

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/published/smollm2.json")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        count = self.number("Q")
        self.at += count
        return self.data[self.at - count : self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(SCALARS[kind])


def dequantize(kind, raw, shape):
    """Decodes F32; Q8_0: blocks of 32 bytes with a scale; Q4_1: two numbers a byte, with a scale and a least value."""
    if kind == 0:
        return np.frombuffer(raw, "<f4", math.prod(shape)).astype(np.float64).reshape(shape)
    if kind == 8:
        blocks = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("bytes", "i1", 32)]), math.prod(shape) // 32)
        return (blocks["bytes"] * blocks["scale"].astype(np.float64)[:, None]).reshape(shape)
    if kind != 3:
        sys.exit(f"tensors of type {kind} are not known here")
    blocks = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("least", "<f2"), ("bytes", "u1", 16)]), math.prod(shape) // 32)
    numbers = np.concatenate([blocks["bytes"] & 15, blocks["bytes"] >> 4], axis=1)
    values = numbers * blocks["scale"].astype(np.float64)[:, None] + blocks["least"].astype(np.float64)[:, None]
    return values.reshape(shape)


def load(path):
    with open(path, "rb") as file:
        reader = Reader(file.read())
    reader.at = 8
    tensors, values = reader.number("Q"), reader.number("Q")
    about = {}
    for _ in range(values):
        key = reader.text()
        about[key] = reader.value(reader.number("I"))
    places = []
    for _ in range(tensors):
        name, dims = reader.text(), reader.number("I")
        shape = [reader.number("Q") for _ in range(dims)][::-1]
        places.append((name, shape, reader.number("I"), reader.number("Q")))
    start = -(-reader.at // 32) * 32
    return about, {name: dequantize(kind, reader.data[start + at :], shape) for name, shape, kind, at in places}


def norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rotate(x, base):
    """Rotates x [tokens, heads, width] in pairs of neighbours, the order of Llama's rows in GGUF files."""
    tokens, _, width = x.shape
    angle = np.arange(tokens)[:, None] * base ** (-np.arange(0, width, 2) / width)
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None, :]
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def logits(about, w, tokens):
    size = lambda key: about["llama." + key]
    heads, shared, base = size("attention.head_count"), size("attention.head_count_kv"), size("rope.freq_base")
    epsilon, x = size("attention.layer_norm_rms_epsilon"), w["token_embd.weight"][tokens]
    mask = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(size("block_count")):
        weight = lambda name: w[f"blk.{layer}.{name}.weight"]
        h = norm(x, weight("attn_norm"), epsilon)
        q, k, v = ((h @ weight(f"attn_{c}").T).reshape(len(tokens), n, -1) for c, n in (("q", heads), ("k", shared), ("v", shared)))
        q, k = rotate(q, base), rotate(k, base)
        k, v = (np.repeat(y, heads // shared, axis=1) for y in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1]) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(len(tokens), -1) @ weight("attn_output").T
        h = norm(x, weight("ffn_norm"), epsilon)
        gate = h @ weight("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
    return norm(x[-1], w["output_norm.weight"], epsilon) @ w["token_embd.weight"].T


def main(driver, path):
    about, weights = load(path)
    prompts = []
    for text in PROMPTS.split("\n"):
        done = subprocess.run([driver, "encode", "--tokenizer", path], input=text, capture_output=True, text=True, check=True)
        tokens = [int(x) for x in done.stdout.split()]
        last = logits(about, weights, tokens)
        largest = [[int(i), float(f"{last[i]:.7g}")] for i in np.argsort(-last)[:5]]
        prompts.append({"text": text, "tokens": tokens, "classes": len(last), "spread": float(f"{last.std():.7g}"), "largest": largest})
    with open(OUT, "w") as file:
        file.write('{"prompts": [\n' + ",\n".join(json.dumps(prompt) for prompt in prompts) + "\n]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
