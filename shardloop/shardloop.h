/* shardloop.h - all that the library offers, for programs that use it: #include <shardloop/shardloop.h>.
 *
 * The list is in the order of what stands on what, and says where to read on. A program may include single headers
 * instead: <shardloop/collectives/collectives.h>. */
#ifndef SL_SHARDLOOP_H
#define SL_SHARDLOOP_H

/* Statuses and errors, data types, memory, files. */
#include "spmd/base/base.h"
#include "spmd/base/bf16.h"
#include "spmd/base/budget.h"
#include "spmd/base/build_id.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/crew.h"
#include "spmd/base/dtype.h"
#include "spmd/base/error.h"
#include "spmd/base/file.h"
#include "spmd/base/hash.h"
#include "spmd/base/memory.h"
#include "spmd/base/scratch.h"
#include "spmd/base/svg.h"
#include "spmd/base/vector_math.h"

/* Schedules of pipelines: find and make them, prove and simulate them, draw them. */
#include "spmd/schedule/csv.h"
#include "spmd/schedule/deadlock.h"
#include "spmd/schedule/fuse.h"
#include "spmd/schedule/generate.h"
#include "spmd/schedule/registry.h"
#include "spmd/schedule/schedule.h"
#include "spmd/schedule/simulate.h"
#include "spmd/schedule/turns.h"
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/drawing/page.h"
#include "spmd/schedule/drawing/timeline.h"
#include "spmd/schedule/synthesis/sketch.h"
#include "spmd/schedule/synthesis/synthesize.h"

/* Meshes and the program that runs at every coordinate; partition specs; random numbers; devices. */
#include "spmd/device/device.h"
#include "spmd/device/far.h"
#include "spmd/device/window.h"
#include "spmd/device/offload.h"
#include "spmd/engine.h"
#include "spmd/flax.h"
#include "spmd/mesh.h"
#include "spmd/placement.h"
#include "spmd/random.h"
#include "spmd/shard_draw.h"
#include "spmd/signature.h"
#include "spmd/spec.h"
#include "spmd/spmd.h"
#include "spmd/topology.h"

/* Engines by name, collective operations, channels. */
#include "collectives/channel.h"
#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "collectives/operations.h"
#include "collectives/paper.h"
#include "collectives/reduce.h"
#include "collectives/shard_map.h"
#include "collectives/signatures.h"
#include "collectives/sums.h"
#include "collectives/verdict.h"

/* Matrix products and other loops, for modules of one's own. */
#include "layers/kernels/attention.h"
#include "layers/kernels/attention_latent.h"
#include "layers/kernels/expert.h"
#include "layers/kernels/gemm.h"
#include "layers/kernels/kernels.h"
#include "layers/kernels/rows/few_rows.h"
#include "layers/kernels/rows/few_terms.h"
#include "layers/kernels/rows/many_rows.h"
#include "layers/kernels/rows/one_row.h"
#include "layers/kernels/sequence.h"

/* Files of tensors and of text. */
#include "layers/storage/checksums.h"
#include "layers/storage/contents.h"
#include "layers/storage/draft.h"
#include "layers/storage/file_tree.h"
#include "layers/storage/gguf.h"
#include "layers/storage/names.h"
#include "layers/storage/safetensors.h"
#include "layers/storage/store.h"
#include "layers/storage/token_format.h"
#include "layers/storage/tokens.h"
#include "layers/tokenizers/tokenizer.h"

/* Layers. */
#include "layers/modules/batch.h"
#include "layers/modules/caches.h"
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/feedforward/norm.h"
#include "layers/modules/feedforward/products.h"
#include "layers/modules/gradient_check.h"
#include "layers/modules/parameters/gathers.h"
#include "layers/modules/parameters/scatters.h"
#include "layers/modules/groups.h"
#include "layers/modules/kept.h"
#include "layers/modules/load.h"
#include "layers/modules/module.h"
#include "layers/modules/modules.h"
#include "layers/modules/parameters/parameters.h"
#include "layers/modules/profile.h"
#include "layers/modules/parameters/rules.h"
#include "layers/modules/sequence/rope.h"
#include "layers/modules/sequence/token_chunks.h"
#include "layers/modules/sequence/token_table.h"
#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

/* Training: models, pipelines, optimizers, the trainer, checkpoints. */
#include "layers/training/checkpoint.h"
#include "layers/training/exchange.h"
#include "layers/training/model.h"
#include "layers/training/optimizer.h"
#include "layers/training/pipeline.h"
#include "layers/training/replicas.h"
#include "layers/training/trace.h"
#include "layers/training/trainer.h"
#include "layers/training/update.h"

/* The models that there are, and generation. */
#include "layers/models/classifier.h"
#include "layers/models/generate.h"
#include "layers/models/recomputation.h"
#include "layers/models/sampling.h"
#include "layers/models/transformer.h"

#endif
