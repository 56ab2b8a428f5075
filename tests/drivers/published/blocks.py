#!/usr/bin/env python3
"""blocks.py OUT TYPES [SIZES] - writes a random Llama as a GGUF file. Its matrices have TYPES in turn ("Q4_1,Q8_0"), its vectors
are F32. SIZES: dimension, heads, heads of keys, columns of a head, blocks, columns inside an MLP, vocabulary."""

import random
import struct
import sys

# For each type: GGML's number, elements and bytes of a block, and its float16 scales: offset, and a value that makes weights
# of about 0.05.
TYPES = {
    "Q8_0": (8, 32, 34, [(0, 6e-4)]),
    "Q4_0": (2, 32, 18, [(0, 0.01)]),
    "Q4_1": (3, 32, 20, [(0, 0.01), (2, -0.075)]),
    "Q5_0": (6, 32, 22, [(0, 0.005)]),
    "Q5_1": (7, 32, 24, [(0, 0.005), (2, -0.08)]),
    "Q2_K": (10, 256, 84, [(80, 4e-3), (82, 6e-3)]),
    "Q3_K": (11, 256, 110, [(108, 1.5e-3)]),
    "Q4_K": (12, 256, 144, [(0, 2e-4), (2, 1.5e-3)]),
    "Q5_K": (13, 256, 176, [(0, 1e-4), (2, 1.5e-3)]),
    "Q6_K": (14, 256, 210, [(208, 5e-5)]),
}


def text(string):
    return struct.pack("<Q", len(string)) + string.encode()


def matrix(draw, kind, elements):
    """Returns blocks of random bytes with float16 scales that differ from block to block."""
    _, each, size, halves = TYPES[kind]
    count = elements // each
    data = bytearray(draw.randbytes(count * size))
    scales = {at: [struct.pack("<e", value * (0.5 + i / 8)) for i in range(8)] for at, value in halves}
    for at, choices in scales.items():
        for byte in range(2):
            data[at + byte :: size] = bytes(choices[i * i % 8][byte] for i in range(count))
    return bytes(data)


def main(out, types, sizes="64,4,2,16,2,96,72"):
    draw, types = random.Random(1), types.split(",")
    dimension, heads, keys, width, blocks, inside, vocabulary = map(int, sizes.split(","))
    counts = {"embedding_length": dimension, "block_count": blocks, "feed_forward_length": inside, "attention.head_count": heads, "attention.head_count_kv": keys}
    counts |= {"attention.key_length": width, "attention.value_length": width, "rope.dimension_count": width, "context_length": 2048, "vocab_size": vocabulary}
    head = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for key, value in counts.items():
        head += text("llama." + key) + struct.pack("<II", 4, value)
    head += text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    shapes = {"token_embd": (vocabulary, dimension), "output_norm": (dimension,)}
    for b in range(blocks):
        own = {"attn_norm": (dimension,), "attn_q": (heads * width, dimension), "attn_k": (keys * width, dimension), "attn_v": (keys * width, dimension)}
        own |= {"attn_output": (dimension, heads * width), "ffn_norm": (dimension,), "ffn_gate": (inside, dimension), "ffn_up": (inside, dimension)}
        own |= {"ffn_down": (dimension, inside)}
        shapes |= {f"blk.{b}.{name}": shape for name, shape in own.items()}
    infos, parts, offset, matrices = b"", [], 0, 0
    for name, shape in shapes.items():
        kind = types[matrices % len(types)] if len(shape) == 2 else "F32"
        matrices += len(shape) == 2
        number = 0 if kind == "F32" else TYPES[kind][0]
        part = struct.pack(f"<{shape[0]}f", *[1.0] * shape[0]) if kind == "F32" else matrix(draw, kind, shape[0] * shape[1])
        part += b"\0" * (-len(part) % 32)
        infos += text(name + ".weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number, offset)
        parts.append(part)
        offset += len(part)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), 2 + len(counts)) + head + infos
    with open(out, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        file.writelines(parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
