#!/usr/bin/env python3
"""quantized.py - makes tests/data/published/quantized.gguf, for test_weights: of each type two blocks of random bytes, and
as NAME.values the floats to which gguf 0.19 dequantizes them. Needs, by pip: gguf."""

import os

import gguf
import numpy

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/published/quantized.gguf")
# Offsets of a block's halves, which must be finite.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
draw = numpy.random.default_rng(1)
writer = gguf.GGUFWriter(OUT, "none")
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (2, size), dtype=numpy.uint8)
    for at in halves:
        blocks[:, at : at + 2] = draw.normal(0, 1, 2).astype(numpy.float16).view(numpy.uint8).reshape(2, 2)
    values = gguf.quants.dequantize(blocks.reshape(1, -1), kind)
    writer.add_tensor(name, blocks.reshape(1, -1), raw_dtype=kind)
    writer.add_tensor(f"{name}.values", values.astype(numpy.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
