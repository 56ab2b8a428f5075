"""jax_transformer - the transformer in JAX: on a mesh of simulated devices, or on one device.

--layout sharded is the scheme of data x pipe x tensor parallelism, one program per coordinate of the mesh. Between
layers a coordinate has some columns of its microbatch. Dense layers multiply these by their rows of the kernel and
scatter the sums over columns (psum_scatter over tp), where a coordinate gets whole heads; kernels' columns are sharded
over dp, too, and gathered for each product (FSDP); norms add squares up. Blocks are stages over pp; microbatches begin
and end on all stages and are handed around (GPipe), and stages without one do nothing. Embedding and logits have shares
of the sequence instead of columns, which an all_to_all exchanges. --layout single is the whole batch on one device,
which has all cores. transformer_model.py tells of the model.

--job step: forward, backward and AdamW. --job generate: greedy on one device, with caches of keys and values, for one
sequence and then for --batch of them. --check compares loss and gradients of the mesh with those of one device.

--precision bf16 rounds the operands of dense layers and attention to bfloat16; steps keep parameters, norms, softmax,
the loss and AdamW in float32; generation has parameters and caches in bfloat16.
"""

import os
from functools import partial

import measure
import transformer_model as model

AXES = ("dp", "pp", "tp")


def mesh_sizes(text):
    """Returns dp=2,pp=2,tp=2 as a dictionary. An axis that is left out has the size 1."""
    sizes = dict.fromkeys(AXES, 1)
    for word in text.split(","):
        name, _, size = word.partition("=")
        if name not in sizes or not size.isdigit() or int(size) < 1:
            raise measure.argparse.ArgumentTypeError(f'mesh "{text}": write dp=N,pp=N,tp=N')
        sizes[name] = int(size)
    return sizes


def read_options():
    parser = model.make_parser(__doc__)
    parser.add_argument("--layout", choices=["sharded", "single"], default="sharded", help="default %(default)s")
    parser.add_argument("--mesh", type=mesh_sizes, default="dp=2,pp=2,tp=2", help="default %(default)s")
    parser.add_argument("--microbatches", type=measure.positive, default=4, help="parts of the batch (default 4)")
    parser.add_argument("--recompute", action="store_true", help="keep only each stage's inputs for backward")
    parser.add_argument("--check", action="store_true", help="compare the mesh with one device, and exit")
    options = parser.parse_args()
    model.check_options(parser, options)
    dp, pp, tp = (options.mesh[axis] for axis in AXES)
    if options.job == "generate":
        options.layout = "single"
    if options.layout == "single" and not options.check:
        return options
    for what, count, over, parts in (
        ("blocks", options.blocks, "pp", pp),
        ("microbatches", options.microbatches, "pp", pp),
        ("heads", options.n_heads, "tp", tp),
        ("tokens a sequence", options.sequence, "tp", tp),
        ("columns", options.model_dimension, "tp", tp),
        ("columns of a latent", options.latent_dim, "tp", tp),
        ("columns of the narrowest kernel", min(options.rope_dim, 2 * options.latent_dim), "dp", dp),
        ("sequences", options.batch, f"{options.microbatches} microbatches and dp", options.microbatches * dp),
    ):
        if count % parts:
            parser.error(f"{count} {what} do not divide over {over}={options.mesh[over[-2:]]}")
    return options


options = read_options()
DP, PP, TP = (options.mesh[axis] for axis in AXES)
SHARDED = options.layout == "sharded" or options.check
HEADS, MICROBATCHES = options.n_heads, options.microbatches

# Read when jax is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
if SHARDED:
    simulated = f"--xla_force_host_platform_device_count={DP * PP * TP} "
    os.environ["XLA_FLAGS"] = simulated + os.environ.get("XLA_FLAGS", "")

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


# ---- a device's computation in both layouts


def rounded(x):
    return x.astype(jnp.bfloat16) if options.precision == "bf16" else x


def rotate(x, cosines, sines):
    """Rotates pairs of neighbouring columns of x [..., positions, columns]."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    return jnp.stack([even * cosines - odd * sines, odd * cosines + even * sines], -1).reshape(x.shape)


def split_heads(x, heads):
    """Turns [rows, positions, columns] into [rows, heads, positions, columns / heads], which decoding need not copy."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)


def with_turned(x, turned):
    """Joins each head's own columns with rotated ones. Keys have the same rotated columns in all heads: [rows, 1, positions,
    columns]."""
    return jnp.concatenate([x, jnp.broadcast_to(turned, (*x.shape[:-1], turned.shape[-1]))], -1)


def attend(queries, keys, values, mask):
    """Attention on [rows, heads, positions, columns]; MASK: [positions of queries, positions of keys]."""
    queries, keys, values = map(rounded, (queries, keys, values))
    scores = jnp.einsum("bhtd,bhsd->bhts", queries, keys).astype(jnp.float32) * queries.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    y = jnp.einsum("bhts,bhsd->bhtd", rounded(weights), values).astype(jnp.float32).swapaxes(1, 2)
    return y.reshape(*y.shape[:2], -1)


def causal(positions):
    return jnp.tril(jnp.ones((positions, positions), bool))


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def cross_entropies(logits, targets):
    """Returns the sum of the tokens' losses."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).sum()


def adamw(parameters, gradients, m, v, count):
    m = jax.tree.map(lambda m, g: model.BETA1 * m + (1 - model.BETA1) * g, m, gradients)
    v = jax.tree.map(lambda v, g: model.BETA2 * v + (1 - model.BETA2) * g * g, v, gradients)
    scale1, scale2 = 1 / (1 - model.BETA1**count), 1 / (1 - model.BETA2**count)

    def update(p, m, v):
        change = scale1 * m / (jnp.sqrt(scale2 * v) + model.EPSILON) + model.DECAY * p
        return p - model.LEARNING_RATE * change

    return jax.tree.map(update, parameters, m, v), m, v


# ---- one device: parameters are named as in transformer_model.py


def dense(p, name, x):
    return (rounded(x) @ rounded(p[name + ".kernel"])).astype(jnp.float32) + p[name + ".bias"]


def rms_norm(p, name, x):
    scale = lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + model.NORM_EPSILON)
    return x * scale * p[name + ".gamma"] + p[name + ".beta"]


def attention(p, name, x, turns, with_rope, cache, begin):
    """CACHE: keys and values of all positions, filled up to BEGIN; None: there is no cache.
    Returns y, and the keys and values that it read."""
    h = dense(p, name + ".down", x)
    kv, q = jnp.split(h, 2, -1)
    keys, values = (split_heads(part, HEADS) for part in jnp.split(dense(p, name + ".kv_up", kv), 2, -1))
    queries = split_heads(dense(p, name + ".q_up", q), HEADS)
    if with_rope:
        keys = with_turned(keys, rotate(dense(p, name + ".k_rope", h), *turns["key"])[:, None])
        queries = with_turned(queries, split_heads(rotate(dense(p, name + ".q_rope", h), *turns["queries"]), HEADS))
    cached, mask = (keys, values), causal(x.shape[1])
    if cache is not None:
        cached = [lax.dynamic_update_slice(old, rounded(new), (0, 0, begin, 0)) for old, new in zip(cache, cached)]
        mask = jnp.arange(cached[0].shape[2]) <= begin
    return dense(p, name + ".out", attend(queries, *cached, mask)), cached


def forward(p, tokens, begin=0, caches=None):
    """Returns the hidden states of TOKENS, whose first is at position BEGIN, and the layers' caches."""
    positions = tokens.shape[1] if caches is None else caches[0][0].shape[2]
    turns = {}
    for name, columns in ("key", options.rope_dim), ("queries", options.rope_dim * HEADS):
        tables = map(jnp.asarray, model.rotation(positions, columns))
        turns[name] = [lax.dynamic_slice_in_dim(table, begin, tokens.shape[1]) for table in tables]
    x, filled = p["embedding"][tokens].astype(jnp.float32), []
    for block in range(options.blocks):
        for layer in range(options.layers_per_block):
            name = f"blocks.{block}.layers.{layer}"
            cache, with_rope = caches[len(filled)] if caches else None, model.has_rope(options, layer)
            y = rms_norm(p, name + ".norm1", x)
            y, cache = attention(p, name + ".mla", y, turns, with_rope, cache, begin)
            filled.append(cache)
            x = x + y
            x = x + dense(p, name + ".mlp.down", gelu(dense(p, name + ".mlp.up", rms_norm(p, name + ".norm2", x))))
    return x, filled


def logits_of(p, x):
    return (rounded(rms_norm(p, "norm", x)) @ rounded(p["embedding"]).T).astype(jnp.float32)


def single_loss(p, inputs, targets):
    return cross_entropies(logits_of(p, forward(p, inputs)[0]), targets) / targets.size


def single_step(state, count, inputs, targets):
    parameters, m, v = state
    loss, gradients = jax.value_and_grad(single_loss)(parameters, inputs, targets)
    return adamw(parameters, gradients, m, v, jnp.float32(count + 1)), loss


def next_token(p, x):
    return jnp.argmax(logits_of(p, x[:, -1]), -1).astype(jnp.int32)[:, None]


def prefill(p, prompts, positions):
    """POSITIONS: room in the caches."""
    x, caches = forward(p, prompts)
    room = [(0, 0), (0, 0), (0, positions - prompts.shape[1]), (0, 0)]
    return jax.tree.map(lambda cached: jnp.pad(rounded(cached), room), caches), next_token(p, x)


def decode(caches, p, token, begin):
    x, caches = forward(p, token, begin, caches)
    return caches, next_token(p, x)


# ---- a mesh: blocks' parameters are stacked [blocks, segments, ...] under their names within a block
#
# Where columns are several things side by side, a coordinate has its share of each: they are segments.

COLUMN_SEGMENTS = {"mla.down": 2, "mla.kv_up": 2}  # [kv | q], [k | v]
ROW_SEGMENTS = {"mla.k_rope": 2, "mla.q_rope": 2}  # [kv | q]


def mesh_parameters(parameters):
    """Returns the mesh's parameters, made from those of one device."""
    stacked = {name: value for name, value in parameters.items() if not name.startswith("blocks.")}
    for name in filter(lambda name: name.startswith("blocks.0."), parameters):
        inner = name.removeprefix("blocks.0.")
        value = numpy.stack([parameters[f"blocks.{block}.{inner}"] for block in range(options.blocks)])
        dense_name = inner.partition(".")[2].partition(".")[2].rpartition(".")[0]  # without layers.N
        if inner.endswith(".kernel"):
            value = value.reshape(options.blocks, ROW_SEGMENTS.get(dense_name, 1), -1, value.shape[-1])
        elif inner.endswith(".bias"):
            value = value.reshape(options.blocks, COLUMN_SEGMENTS.get(dense_name, 1), -1)
        stacked[inner] = value
    return stacked


def mesh_spec(name):
    """Returns the sharding of the parameter NAME."""
    if name == "embedding":
        return P()
    if not name.startswith("layers."):
        return P("tp")
    if name.endswith(".kernel"):
        return P("pp", None, "tp", "dp")
    if name.endswith("k_rope.bias"):
        return P("pp")  # all heads have this key
    return P("pp", None, "tp") if name.endswith(".bias") else P("pp", "tp")


def gathered(p, name):
    kernel = lax.all_gather(rounded(p[name + ".kernel"]), "dp", axis=2, tiled=True)
    return kernel.reshape(-1, kernel.shape[-1])


def sharded_product(p, name, x):
    return (rounded(x) @ gathered(p, name)).astype(jnp.float32)


def sharded_dense(p, name, x):
    bias = p[name + ".bias"]
    y = sharded_product(p, name, x)
    y = y.reshape(*y.shape[:-1], len(bias), -1)
    y = lax.psum_scatter(y, "tp", scatter_dimension=y.ndim - 1, tiled=True) + bias
    return y.reshape(*x.shape[:-1], -1)


def summed_dense(p, name, x):
    """A dense layer whose result has all columns on every coordinate."""
    return lax.psum(sharded_product(p, name, x), "tp") + p[name + ".bias"][0]


def sharded_rms_norm(p, name, x):
    mean = lax.psum(jnp.square(x).sum(-1, keepdims=True), "tp") / options.model_dimension
    return x * lax.rsqrt(mean + model.NORM_EPSILON) * p[name + ".gamma"] + p[name + ".beta"]


def sharded_attention(p, name, x, with_rope):
    heads = HEADS // TP
    h = sharded_dense(p, name + ".down", x)
    kv, q = jnp.split(h, 2, -1)
    keys, values = (split_heads(part, heads) for part in jnp.split(sharded_dense(p, name + ".kv_up", kv), 2, -1))
    queries = split_heads(sharded_dense(p, name + ".q_up", q), heads)
    if with_rope:
        tables = map(jnp.asarray, model.rotation(x.shape[1], options.rope_dim))
        turned = rotate(summed_dense(p, name + ".k_rope", h), *tables)
        keys = with_turned(keys, turned[:, None])
        pairs = options.rope_dim * heads // 2
        tables = map(jnp.asarray, model.rotation(x.shape[1], options.rope_dim * HEADS))
        tables = [lax.dynamic_slice_in_dim(table, lax.axis_index("tp") * pairs, pairs, 1) for table in tables]
        turned = rotate(sharded_dense(p, name + ".q_rope", h), *tables)
        queries = with_turned(queries, split_heads(turned, heads))
    return sharded_dense(p, name + ".out", attend(queries, keys, values, causal(x.shape[1])))


def stage(p, x):
    """Applies this coordinate's blocks."""
    for block in range(options.blocks // PP):
        own = {name: values[block] for name, values in p.items()}
        for layer in range(options.layers_per_block):
            name, with_rope = f"layers.{layer}", model.has_rope(options, layer)
            y = sharded_rms_norm(own, name + ".norm1", x)
            x = x + sharded_attention(own, name + ".mla", y, with_rope)
            y = sharded_dense(own, name + ".mlp.up", sharded_rms_norm(own, name + ".norm2", x))
            x = x + sharded_dense(own, name + ".mlp.down", gelu(y))
    return x


def pipeline(p, x):
    """Takes x [microbatches / pp, rows, sequence, columns / tp]. Stage s begins and ends with the s-th share of all
    microbatches: shares go around the ring, the first stage reads them and the last one writes them."""
    number, share = lax.axis_index("pp"), len(x)
    run = jax.checkpoint(stage) if options.recompute else stage
    forth = partial(lax.ppermute, axis_name="pp", perm=[(s, (s + 1) % PP) for s in range(PP)])
    back = partial(lax.ppermute, axis_name="pp", perm=[(s, (s - 1) % PP) for s in range(PP)])
    outputs, state = jnp.zeros_like(x), jnp.zeros_like(x[0])
    for t in range(MICROBATCHES + PP - 1):
        if t < MICROBATCHES:
            if t and t % share == 0:
                x = back(x)
            state = jnp.where(number == 0, x[t % share], state)
        busy = (number <= t) & (t < number + MICROBATCHES)
        state = lax.cond(busy, run, lambda p, state: state, p, state)
        done = t - (PP - 1)
        if done >= 0:
            if done and done % share == 0:
                outputs = back(outputs)
            last = jnp.where(number == PP - 1, state, outputs[done % share])
            outputs = outputs.at[done % share].set(last)
        if t < MICROBATCHES + PP - 2:
            state = forth(state)
    return outputs


def sharded_loss(p, inputs, targets):
    """Returns this coordinate's part of the mean loss, from its own tokens [microbatches / pp, rows, sequence / tp]."""
    x = lax.all_to_all(p["embedding"][inputs], "tp", split_axis=3, concat_axis=2, tiled=True)
    x = pipeline({name: value for name, value in p.items() if name.startswith("layers.")}, x)
    x = sharded_rms_norm(p, "norm", x)
    x = lax.all_to_all(x, "tp", split_axis=2, concat_axis=3, tiled=True)
    logits = (rounded(x) @ rounded(p["embedding"]).T).astype(jnp.float32)
    return cross_entropies(logits, targets) / (options.batch * options.sequence)


def complete(gradients):
    """Sums each gradient's parts over the axes whose coordinates have copies of the parameter.
    Gradients of parameters sharded over an axis have been summed by all_gather's backward. Gradients with equal axes share
    one psum."""
    groups = {}
    for name in gradients:
        groups.setdefault(tuple(axis for axis in AXES if axis not in mesh_spec(name)), []).append(name)
    summed = {}
    for axes, names in groups.items():
        parts = [gradients[name] for name in names]
        flat = lax.psum(jnp.concatenate([part.ravel() for part in parts]), axes) if axes else None
        for name, part in zip(names, parts):
            if axes:
                part, flat = flat[: part.size].reshape(part.shape), flat[part.size :]
            summed[name] = part
    return summed


def sharded_gradients(parameters, inputs, targets):
    loss, gradients = jax.value_and_grad(sharded_loss)(parameters, inputs, targets)
    return lax.psum(loss, AXES), complete(gradients)


def sharded_step(state, count, inputs, targets):
    parameters, m, v = state
    loss, gradients = sharded_gradients(parameters, inputs, targets)
    return adamw(parameters, gradients, m, v, jnp.float32(count + 1)), loss


class Sharded:
    """Parameters and tokens on the mesh."""

    def __init__(self, parameters, inputs, targets):
        self.mesh = Mesh(numpy.array(jax.devices()).reshape(DP, PP, TP), AXES)
        parameters = mesh_parameters(parameters)
        self.specs = {name: mesh_spec(name) for name in parameters}
        self.parameters = {name: self.put(parameters[name], spec) for name, spec in self.specs.items()}
        self.token_spec = P("pp", "dp", "tp")
        shape = MICROBATCHES, -1, options.sequence
        self.tokens = [self.put(tokens.reshape(shape), self.token_spec) for tokens in (inputs, targets)]

    def put(self, values, spec):
        return jax.device_put(values, NamedSharding(self.mesh, spec))

    def map(self, function, in_specs, out_specs):
        """Maps FUNCTION over the mesh. IN_SPECS are followed by those of the tokens."""
        in_specs = (*in_specs, self.token_spec, self.token_spec)
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


# ---- jobs


def train():
    parameters, batch = model.random_parameters(options), model.random_batch(options)
    if SHARDED:
        sharded = Sharded(parameters, *batch)
        parameters, batch, states = sharded.parameters, sharded.tokens, (sharded.specs,) * 3
        function = sharded.map(sharded_step, (states, P()), (states, P()))
    else:
        parameters, batch, function = jax.device_put(parameters), jax.device_put(batch), single_step
    state = parameters, *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
    step_function, count = jax.jit(function, donate_argnums=0), 0

    def step():
        nonlocal state, count
        state, loss = jax.block_until_ready(step_function(state, count, *batch))
        count += 1
        return float(loss)

    return measure.run(step, options.steps, options.warmup)


def generate(rows):
    positions = options.prompt + options.tokens - 1  # the last token is not fed back
    parameters = jax.tree.map(rounded, jax.device_put(model.random_parameters(options)))
    prompts = jax.device_put(model.random_prompts(options, rows))
    prefill_function = jax.jit(prefill, static_argnums=2)
    decode_function = jax.jit(decode, donate_argnums=0)

    def begin():
        return jax.block_until_ready(prefill_function(parameters, prompts, positions))

    def proceed(state):
        caches, token = state
        tokens = [token]
        for position in range(options.prompt, positions):
            caches, token = decode_function(caches, parameters, token, position)
            tokens.append(token)
        return numpy.concatenate(tokens, -1)

    return model.measure_generation(options, begin, proceed)


def check():
    """Prints the mesh's differences from one device: of the loss, and the largest of a gradient relative to its largest element."""
    parameters, batch = model.random_parameters(options), model.random_batch(options)
    loss, gradients = jax.jit(jax.value_and_grad(single_loss))(parameters, *batch)
    sharded = Sharded(parameters, *batch)
    function = jax.jit(sharded.map(sharded_gradients, (sharded.specs,), (P(), sharded.specs)))
    mesh_loss, mesh_gradients = function(sharded.parameters, *sharded.tokens)
    differences = {}
    for name, wanted in mesh_parameters(jax.tree.map(numpy.asarray, gradients)).items():
        # A part of kv_up's bias has the gradient 0: it adds the same to all scores of a query.
        scale = max(numpy.abs(wanted).max(), 1e-6)
        differences[name] = float(numpy.abs(numpy.asarray(mesh_gradients[name]) - wanted).max() / scale)
    worst = max(differences, key=differences.get)
    print(f"loss {float(mesh_loss):.9g}, on one device {float(loss):.9g}: difference {abs(mesh_loss - loss):.2g}")
    print(f"gradients: the largest difference is {differences[worst]:.2g} of the gradient's own, {worst}", flush=True)
    if options.precision == "f32" and not (abs(mesh_loss - loss) < 1e-5 and differences[worst] < 1e-3):
        raise SystemExit("--check: the mesh computes something else")


def main():
    if options.check:
        check()
        return
    layout = "_".join(f"{axis}{options.mesh[axis]}" for axis in AXES) if SHARDED else "single"
    peer = {"peer": f"jax_transformer_{layout}", "version": jax.__version__}
    if options.job == "step":
        measure.report(peer | train(), options.json)
        return
    for rows in dict.fromkeys([1, options.batch]):
        model.report_generation(peer | generate(rows), options.json)


main()
