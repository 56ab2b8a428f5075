"""torch_transformer - the transformer in PyTorch: one process on all cores, without any parallelism.

--job step: forward, backward and AdamW over the whole batch. --job generate: greedy, with caches of keys and values,
for one sequence and then for --batch of them. transformer_model.py tells of the model.

--precision bf16: steps are autocast to bfloat16 with float32 master weights; generation has parameters, activations and
caches in bfloat16.
"""

import contextlib
import os
import shutil

import measure
import transformer_model as model

if "CXX" not in os.environ:  # torch.compile's own search knows g++ only
    compiler = next(filter(shutil.which, ["g++", "clang++", "clang++-19"]), None)
    os.environ.update({"CXX": compiler} if compiler else {})

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def read_options():
    parser = model.make_parser(__doc__)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--attention", choices=["flash", "math"], default="flash", help="PyTorch's own, either")
    options = parser.parse_args()
    model.check_options(parser, options)
    if options.mode == "compile" and options.job == "generate":
        parser.error("--mode compile: --job step only")
    return options


class Dense(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return functional.linear(x, self.kernel.t(), self.bias)


class RMSNorm(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(columns))
        self.beta = nn.Parameter(torch.empty(columns))

    def forward(self, x):
        scale = (x.square().mean(-1, keepdim=True) + model.NORM_EPSILON).rsqrt()
        return torch.addcmul(self.beta, x * scale, self.gamma)


def rotate(x, cosines, sines):
    """Rotates pairs of neighbouring columns of x [rows, positions, columns]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cosines - odd * sines, odd * cosines + even * sines), -1).flatten(-2)


class Cache:
    """The keys and values of a layer for all positions so far."""

    def __init__(self, positions):
        self.positions, self.used, self.keys, self.values = positions, 0, None, None

    def append(self, keys, values):
        if self.keys is None:
            rows, heads = keys.shape[:2]
            self.keys = keys.new_empty(rows, heads, self.positions, keys.shape[-1])
            self.values = values.new_empty(rows, heads, self.positions, values.shape[-1])
        end = self.used + keys.shape[2]
        self.keys[:, :, self.used : end] = keys
        self.values[:, :, self.used : end] = values
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class LatentAttention(nn.Module):
    def __init__(self, options, with_rope):
        super().__init__()
        width, latent, rope = options.model_dimension, options.latent_dim, options.rope_dim
        self.heads, self.with_rope = options.n_heads, with_rope
        # Flash attention takes values as wide as keys only.
        self.padding = rope if with_rope and options.attention == "flash" else 0
        self.down = Dense(width, 2 * latent)
        self.kv_up = Dense(latent, 2 * width)
        self.q_up = Dense(latent, width)
        self.out = Dense(width, width)
        if with_rope:
            self.k_rope = Dense(2 * latent, rope)
            self.q_rope = Dense(2 * latent, rope * self.heads)

    def split(self, x):
        """Turns [rows, positions, columns] into [rows, heads, positions, columns / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, turns, cache):
        h = self.down(x)
        kv, q = h.chunk(2, -1)
        keys, values = map(self.split, self.kv_up(kv).chunk(2, -1))
        queries = self.split(self.q_up(q))
        if self.with_rope:
            turned = rotate(self.k_rope(h), *turns["key"])[:, None].expand(-1, self.heads, -1, -1)
            keys = torch.cat((keys, turned.to(keys.dtype)), -1)
            turned = self.split(rotate(self.q_rope(h), *turns["queries"]))
            queries = torch.cat((queries, turned.to(queries.dtype)), -1)
        columns = values.shape[-1]
        if self.padding:
            values = functional.pad(values, (0, self.padding))
        if cache is not None:
            keys, values = cache.append(keys, values)
        y = functional.scaled_dot_product_attention(queries, keys, values, is_causal=x.shape[1] > 1)
        return self.out(y[..., :columns].transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = Dense(width, 4 * width)
        self.down = Dense(4 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, options, with_rope):
        super().__init__()
        self.norm1 = RMSNorm(options.model_dimension)
        self.mla = LatentAttention(options, with_rope)
        self.norm2 = RMSNorm(options.model_dimension)
        self.mlp = MLP(options.model_dimension)

    def forward(self, x, turns, cache):
        x = x + self.mla(self.norm1(x), turns, cache)
        return x + self.mlp(self.norm2(x))


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        layers = range(options.layers_per_block)
        self.layers = nn.ModuleList(Layer(options, model.has_rope(options, layer)) for layer in layers)


class Transformer(nn.Module):
    """The model. Its parameters have the names of model.parameter_shapes."""

    def __init__(self, options, positions):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(options.vocab_size, options.model_dimension))
        self.norm = RMSNorm(options.model_dimension)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.blocks))
        self.turns = {}
        for name, columns in ("key", options.rope_dim), ("queries", options.rope_dim * options.n_heads):
            self.turns[name] = [torch.from_numpy(table) for table in model.rotation(positions, columns)]
        parameters = model.random_parameters(options)
        self.load_state_dict({name: torch.from_numpy(values) for name, values in parameters.items()})

    def layers(self):
        return [layer for block in self.blocks for layer in block.layers]

    def forward(self, tokens, begin=0, caches=None, only_last=False):
        """Returns the logits of TOKENS [rows, positions], whose first is at position BEGIN; if ONLY_LAST, of each row's last token."""
        end = begin + tokens.shape[1]
        turns = {name: [table[begin:end] for table in tables] for name, tables in self.turns.items()}
        x = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers()):
            x = layer(x, turns, caches[number] if caches else None)
        return functional.linear(self.norm(x[:, -1] if only_last else x), self.embedding)


def train(options):
    inputs, targets = (torch.from_numpy(tokens).long() for tokens in model.random_batch(options))
    transformer = Transformer(options, options.sequence)
    betas = model.BETA1, model.BETA2
    optimizer = torch.optim.AdamW(
        transformer.parameters(), model.LEARNING_RATE, betas, model.EPSILON, model.DECAY, fused=True
    )

    def loss_function(inputs, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            logits = transformer(inputs)
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    if options.mode == "compile":
        loss_function = torch.compile(loss_function)

    def step():
        loss = loss_function(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return measure.run(step, options.steps, options.warmup)


def generate(options, rows):
    positions = options.prompt + options.tokens - 1  # the last token is not fed back
    transformer = Transformer(options, positions).to(torch.bfloat16 if options.precision == "bf16" else torch.float32)
    prompts = torch.from_numpy(model.random_prompts(options, rows)).long()

    def next_token(caches, tokens, begin):
        return transformer(tokens, begin, caches, only_last=True).argmax(-1, keepdim=True)

    def prefill():
        caches = [Cache(positions) for _ in transformer.layers()]
        return caches, next_token(caches, prompts, 0)

    def decode(state):
        caches, token = state
        tokens = [token]
        for position in range(options.prompt, positions):
            tokens.append(next_token(caches, tokens[-1], position))
        return torch.cat(tokens, -1).numpy()

    with torch.inference_mode():
        return model.measure_generation(options, prefill, decode)


def main():
    options = read_options()
    torch.set_num_threads(measure.cores())
    peer = {"peer": f"torch_transformer_{options.mode}", "version": torch.__version__}
    with sdpa_kernel(SDPBackend.MATH) if options.attention == "math" else contextlib.nullcontext():
        if options.job == "step":
            measure.report(peer | train(options), options.json)
            return
        for rows in dict.fromkeys([1, options.batch]):
            model.report_generation(peer | generate(options, rows), options.json)


main()
