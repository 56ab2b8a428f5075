"""formulas - the bytes and the arithmetic of kernels, from their parameters."""

import re

HALF = {0: 4, 1: 2}  # bytes of an element by the parameter that says whether it is bf16


def pairs(queries):
    """Of a query and a key that it sees."""
    return queries * (queries + 1) // 2


def tiled_pairs(queries):
    """The same, in whole tiles of 64 by 64."""
    return 64 * 64 * pairs(-(-queries // 64))


def rows_of_heads(p):
    """Of attention on tensor cores: a row of each head."""
    return p[2] * p[3] * p[6]


def written(floats, stored):
    """Bytes of an element that is written as a float, as bf16, or both: to each pointer that is not 0."""
    return 4 * (floats is None) + 2 * (stored is None)


def left(floats, stored):
    """The same by numbers that say whether it is."""
    return 4 * floats + 2 * stored


def dropped(p):
    """Bytes of an element of dropout: x, and the forms of y and of the slope that it writes."""
    return HALF[p[12]] + written(p[13], p[15]) + written(p[16], p[17])


def norm_forward(p, read):
    """Of a norm that reads so many bytes of an element: the bytes that it writes as floats, and as bf16."""
    return p[0] * p[1] * (read + written(p[7], p[9]))


def norm_backward(p, read):
    """The same of backward: a summand is floats or bf16, and each block of rows may write two sums of a column."""
    element = read + written(p[8], p[9]) + written(p[11], p[12])
    return p[1] * p[3] * (p[2] * element + 8 * p[0] * p[13])


def layer_norm_backward(p, read):
    """The same of a layer norm, whose sums of columns have a kernel of their own."""
    return p[0] * p[1] * (read + written(p[6], p[7]) + written(p[8], p[10]))


HEADS = "64", "deep_64", "128", "any_64", "any_128"  # which have kernels of their own on tensor cores

# By kernel, from its parameters in the order in which the compiler hands them over: all numbers, None for a pointer.
BYTES = {
    "fill": lambda p: 4 * p[0],
    "add": lambda p: 12 * p[0],
    "multiply_elements": lambda p: 12 * p[0],
    "multiply_rounded": lambda p: 10 * p[0],
    "round_bf16": lambda p: 6 * p[0],
    "add_settled": lambda p: p[0] * (12 + 2 * (len(p) > 3)),
    "settle_bf16": lambda p: 8 * p[0] if len(p) == 2 else 10 * (p[1] - p[0]),
    "widen_bf16": lambda p: 6 * p[0],
    "column_sums_of": lambda p: p[2] * p[5] * (p[3] * HALF[p[8]] + p[0] * (4 + 4 * p[6])),
    "add_stripes": lambda p: 4 * p[0] * p[1] * (p[3] + 1 + p[4]),
    "words_of_keys": lambda p: 4 * p[0] * p[8],
    "layer_norm_forward": lambda p: 12 * p[0] * p[1],
    "layer_norm_rounded": lambda p: 10 * p[0] * p[1],
    "layer_norm_backward_input": lambda p: p[0] * p[1] * (12 + 4 * p[6]),
    "layer_norm_backward_weight": lambda p: p[2] * p[3] * p[4] * (HALF[p[8]] + HALF[p[9]]),
    "silu_f32": lambda p: 12 * p[0],
    "silu_rounded": lambda p: 10 * p[0],
    "silu_kept_of": lambda p: p[0] * (HALF[p[1]] + left(p[6], p[8]) + 2),
    "multiply_kept_of": lambda p: p[0] * (HALF[p[1]] + 2 + left(p[6], p[8])),
    "drop_parts": lambda p: p[0] * p[7] * dropped(p),
    "drop_rows": lambda p: p[0] * p[3] * dropped(p),
    "softmax_cross_entropy": lambda p: 8 * p[0] * p[2],
    "add_losses": lambda p: 12 * p[0],
    "adamw_of": lambda p: (p[1] - p[0]) * (28 + 4 * p[13] + 2 * p[19]),
    "copy_settled": lambda p: p[0] * p[6] * (8 + 2 * (p[7] is None)),
    "round_block": lambda p: 6 * p[0] * p[5],
    "square_sums": lambda p: 4 * p[0] * p[2],
    "rms_norm_forward": lambda p: 8 * p[0] * p[5],
    "rms_norm_forward_bf16": lambda p: p[0] * p[1] * (4 + 2 * (p[5] is None) + 4 * (p[9] is None)),
    "whole_norm_forward": lambda p: norm_forward(p, 4),
    "whole_norm_forward_half": lambda p: norm_forward(p, 2),
    "whole_layer_norm_forward": lambda p: p[0] * p[1] * (6 + left(p[6], p[8])),
    "whole_layer_norm_forward_half": lambda p: p[0] * p[1] * (4 + left(p[6], p[8])),
    "whole_layer_norm_backward": lambda p: layer_norm_backward(p, 8),
    "whole_layer_norm_backward_kept": lambda p: layer_norm_backward(p, 6),
    "whole_layer_norm_backward_half": lambda p: layer_norm_backward(p, 4),
    "whole_norm_backward": lambda p: norm_backward(p, 8),
    "whole_norm_backward_kept": lambda p: norm_backward(p, 6),
    "whole_norm_backward_half": lambda p: norm_backward(p, 4),
    "add_blocks": lambda p: 8 * p[1] * p[4] * p[5],
    "dots_of": lambda p: p[0] * p[1] * p[2] * (4 + HALF[p[5]]),
    "backward_input_of": lambda p: p[0] * p[1] * (8 + HALF[p[7]] + 4 * p[10] + 2 * (p[13] is None)),
    "backward_weight_of": lambda p: p[2] * p[3] * p[4] * (4 + HALF[p[8]]),
    "gelu_forward_f32": lambda p: 8 * (p[1] - p[0]),
    "gelu_forward_rounded": lambda p: 6 * (p[1] - p[0]),
    "gelu_forward_bf16": lambda p: 4 * (p[1] - p[0]),
    "gelu_forward_kept": lambda p: 8 * (p[1] - p[0]),
    "gelu_forward_kept_f32": lambda p: 12 * (p[1] - p[0]),
    "gelu_backward_f32": lambda p: 12 * (p[1] - p[0]),
    "gelu_backward_rounded": lambda p: 10 * (p[1] - p[0]),
    "gelu_backward_bf16": lambda p: 6 * (p[1] - p[0]),
    "gelu_backward_kept": lambda p: 8 * (p[1] - p[0]),
    "gelu_backward_kept_f32": lambda p: 12 * (p[1] - p[0]),
    "lookup_floats": lambda p: p[0] * p[4] * (4 + HALF[p[8]] + 2 * (p[10] is None)),
    "lookup_stored": lambda p: p[0] * p[4] * (2 + HALF[p[8]]),
    "scatter_add": lambda p: 12 * p[2] * p[3],
    "rotate_heads": lambda p: p[1] * p[10] * p[11] * (8 + 2 * (p[12] is None)),
    "gate_forward": lambda p: p[0] * (8 + written(p[7], p[8]) + 4 * (p[1] + p[4]) + 2 * (p[3] is None) + 2 * (p[6] is None)),
    "gate_backward": lambda p: p[0] * (4 + 2 * HALF[p[2]] + written(p[1], p[6]) + written(p[8], p[7])),
    "row_sums": lambda p: 4 * p[0] * p[1],
    "center_rows": lambda p: 8 * p[0] * p[2],
    "scale_rows": lambda p: 8 * p[0] * p[2],
    "softmax_chunk": lambda p: p[0] * p[2] * (4 + written(p[7], p[8])),
    "softmax_gradient": lambda p: p[0] * p[4] * (8 + HALF[p[10]] + 2 * (p[12] is None)),
    "softmax_dlogits": lambda p: p[0] * p[2] * (4 + written(p[3], p[4])),
    "softmax_losses": lambda p: 20 * p[0],
    "forward": lambda p: 16 * p[2] * p[3] * p[0] * p[6],
    "backward": lambda p: p[2] * p[3] * p[6] * p[7] * (28 + 4 * p[1]),
    **{f"attention_forward_{n}": lambda p: rows_of_heads(p) * p[7] * (HALF[p[15]] + 2 * HALF[p[13]] + written(p[21], p[23])) for n in HEADS},
    **{f"attention_queries_{n}": lambda p: rows_of_heads(p) * p[7] * (3 * HALF[p[13]] + HALF[p[26]] + HALF[p[27]] + written(p[22], p[24])) for n in HEADS},
    **{f"attention_keys_{n}": lambda p: rows_of_heads(p) * p[7] * (3 * HALF[p[13]] + HALF[p[15]] + written(p[16], p[18]) + written(p[19], p[21])) for n in HEADS},
    "add_teams": lambda p: p[0] * p[7] * (4 * p[6] + 4 + 2 * (p[11] is None)),
}
HASH = 300  # of a pair of random words: 75 operations of integers, of which a GPU does a quarter of float32's arithmetic

# Arithmetic that counts beside the bytes: hashes, and attention's. In float32 without tensor cores two products forward, five
# backward; with them two, three for the queries' gradients, and four for those of keys and values, over whole tiles.
FLOPS = {
    "drop_parts": lambda p: HASH * p[0] * p[1],
    "drop_rows": lambda p: HASH * p[0] * p[1],
    "forward": lambda p: 4 * p[6] * p[2] * p[0] * pairs(p[3]),
    "backward": lambda p: 10 * p[7] * p[2] * p[6] * pairs(p[3]),
}
TENSOR_FLOPS = {
    **{f"attention_forward_{n}": lambda p: 4 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
    **{f"attention_queries_{n}": lambda p: 6 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
    **{f"attention_keys_{n}": lambda p: 8 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
}
# The part that every kernel needs: on tensor cores two products in forward and five in backward, over the visible pairs.
# The queries' kernel has three of these five, the keys' kernel two.
NEEDED = {
    **{f"attention_{kernel}_{n}": lambda p, products=products: 2 * products * p[7] * p[2] * p[6] * pairs(p[3])
       for n in HEADS for kernel, products in (("forward", 2), ("queries", 3), ("keys", 2))},
}
PARAMETERS = {"forward": 23, "backward": 41}  # other files have functions of these names
ATTENTION = ("forward", "backward", "add_teams", *TENSOR_FLOPS)
OPTIMIZERS = ("adamw_of",)


def number(word):
    """A parameter's; None for a pointer."""
    return int(word, 0) if re.fullmatch("0x[0-9a-f]+|[0-9]+", word) else None


def function_of(name):
    return re.fullmatch(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_(.*)_l[0-9]+", name).group(1)
