/* launch.h - device code that is executed on this machine: images of translated PTX (translate.py), their launches, and
 * reports to the checker about memory. The stand-in for CUDA's libraries (tests/fake_cuda) calls it.
 *
 * The environment: SL_PTX_SEED=n (orders of warps, blocks and copies repeat those of seed n, which a report names),
 * SL_PTX_CHECK=0 (nothing is checked but bounds and alignment) or tell (races are told and do not end the run),
 * SL_PTX_COUNTS=FILE (a line of JSON a launch), SL_PTX_COVERAGE=FILE (a line for each launch: the basic blocks that
 * have run), SL_PTX_IMAGES=FOLDER (images in it go before others: mutants). */
#ifndef PTX_LAUNCH_H
#define PTX_LAUNCH_H

#include <stddef.h>

struct ptx_module;
struct ptx_kernel;

/* The translated image in LIBRARY, whose variables get memory of this module's own. NULL, after a line on stderr: it
 * cannot be opened. */
struct ptx_module *ptx_open(const char *library);
void ptx_close(struct ptx_module *module);
/* NULL: there is none of that name. */
const struct ptx_kernel *ptx_find(const struct ptx_module *module, const char *name);
void *ptx_variable(struct ptx_module *module, const char *name, size_t *bytes);

/* Runs a kernel of MODULE in the calling thread, to its end. BYTES of PARAMETERS; DYNAMIC bytes of shared memory. A
 * fault ends the process with status 86, after a report on stderr. */
void ptx_launch(struct ptx_module *module, const struct ptx_kernel *kernel, unsigned blocks, unsigned threads,
                unsigned dynamic, const void *parameters, size_t bytes);

/* Memory by its use from the host. The host's stores are seen in none of the kinds, and are allowed in the last two. */
enum ptx_memory { PTX_DEVICE, PTX_MANAGED, PTX_HOST };
/* BYTES at AT may be used from now on; none is written yet. */
void ptx_memory_take(const void *at, size_t bytes, enum ptx_memory kind);
void ptx_memory_free(const void *at);
/* By a copy from the host, a fill, or a library. */
void ptx_memory_written(const void *at, size_t bytes);
/* Bytes that were never written stay such. */
void ptx_memory_copied(const void *to, const void *from, size_t bytes);
/* By a library: a fault if a byte was never written. */
void ptx_memory_read(const void *at, size_t bytes);

#endif
