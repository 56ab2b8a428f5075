/* image.c - translated images, as translate.py writes them (lines of JSON): kernels, and variables of which each module
 * has its own. */
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"
#include "warp.h"

static void *need(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "ptx: no memory for an image\n");
    abort();
}
static void *zeros(size_t count, size_t size) { return need(calloc(count ? count : 1, size)); }
static uint64_t number(const json_t *row, size_t i) { return (uint64_t)json_integer_value(json_array_get(row, i)); }
static const char *text(const json_t *row, size_t i) { return json_string_value(json_array_get(row, i)); }
static uint32_t field(const json_t *object, const char *name) {
    return (uint32_t)json_integer_value(json_object_get(object, name));
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct ptx_operation *)a)->name, ((const struct ptx_operation *)b)->name);
}

/* All operations, sorted. */
static const struct ptx_operation *operation(const char *name) {
    static struct ptx_operation *all;
    static size_t count;
    if (!all) {
        const struct ptx_operation *const tables[] = {ptx_integer_operations, ptx_float_operations,
                                                      ptx_convert_operations, ptx_memory_operations,
                                                      ptx_together_operations};
        struct ptx_operation *list = zeros(2000, sizeof *list);
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
            for (const struct ptx_operation *row = tables[i]; row->name; row++) list[count++] = *row;
        qsort(list, count, sizeof *list, by_name);
        all = list;
    }
    const struct ptx_operation key = {name, NULL};
    return bsearch(&key, all, count, sizeof *all, by_name);
}

/* ---- variables ---- */

static void make_variable(struct ptx_variable *variable, const json_t *row) {
    char *memory = NULL;
    const char *hex = text(row, 3);
    *variable = (struct ptx_variable){.name = need(strdup(text(row, 0))), .bytes = number(row, 1)};
    if (posix_memalign((void **)&memory, 256, variable->bytes + 256)) abort();
    ptx_memory_take(memory, variable->bytes, PTX_DEVICE);
    memset(memory, 0, variable->bytes);
    for (size_t i = 0; hex[2 * i]; i++) {
        const char byte[] = {hex[2 * i], hex[2 * i + 1], 0};
        memory[i] = (char)strtoul(byte, NULL, 16);
    }
    ptx_memory_written(memory, variable->bytes);
    variable->at = (uintptr_t)memory;
}

static void make_variables(struct ptx_module *module, const json_t *rows) {
    module->variables = (uint32_t)json_array_size(rows);
    module->variable = zeros(module->variables, sizeof *module->variable);
    for (uint32_t i = 0; i < module->variables; i++) make_variable(&module->variable[i], json_array_get(rows, i));
    for (uint32_t i = 0; i < module->variables; i++) {
        const json_t *pointers = json_array_get(json_array_get(rows, i), 4), *p;
        size_t k;
        json_array_foreach(pointers, k, p) {
            *(uint64_t *)(uintptr_t)(module->variable[i].at + number(p, 0)) =
                module->variable[number(p, 1)].at + number(p, 2);
        }
    }
}

/* ---- kernels ---- */

/* VALUE in all lanes of a place of BITS; 0 bits: a predicate. */
static void spread(char *place, uint64_t bits, uint64_t value) {
    for (int lane = 0; lane < 32 && bits; lane++) memcpy(place + lane * bits / 8, &value, bits / 8);
    if (!bits) memcpy(place, &value, 4);
}

static void make_constants(const struct ptx_module *module, struct ptx_kernel *kernel, const json_t *rows,
                           size_t bytes) {
    const json_t *row;
    size_t i;
    if (posix_memalign((void **)&kernel->constants, 256, bytes + 256)) abort();
    json_array_foreach(rows, i, row) {
        char *place = kernel->constants + number(row, 0);
        const char *what = text(row, 2);
        if (!strcmp(what, "number"))
            spread(place, number(row, 1), strtoull(text(row, 3), NULL, 16));
        else if (!strcmp(what, "variable"))
            spread(place, 64, module->variable[number(row, 3)].at + number(row, 4));
        else
            for (size_t lane = 0; lane < 32; lane++)
                ((uint32_t *)place)[lane] = (uint32_t)number(json_array_get(row, 3), lane);
    }
}

/* [name, site, number...] at TO, or nowhere if TO is NULL; its bytes. */
static size_t make_op(char *to, const json_t *row) {
    const size_t count = json_array_size(row) - 2,
                 bytes = (sizeof(struct ptx_op) + count * sizeof(uint32_t) + 7) & ~(size_t)7;
    if (!to) return bytes;
    struct ptx_op *op = (struct ptx_op *)to;
    const struct ptx_operation *found = operation(text(row, 0));
    if (!found) {
        fprintf(stderr, "ptx: there is no operation %s\n", text(row, 0));
        found = operation("unknown");
    }
    op->run = found->run;
    op->site = (uint32_t)number(row, 1);
    op->bytes = (uint32_t)bytes;
    for (size_t i = 0; i < count; i++) op->n[i] = (uint32_t)number(row, 2 + i);
    return bytes;
}

static size_t make_ops(char *to, const json_t *rows) {
    size_t bytes = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row) bytes += make_op(to ? to + bytes : NULL, row);
    return bytes;
}

static size_t make_block(struct ptx_basic *block, char *to, const json_t *row) {
    static const char *const ends[] = {"go", "leave", "trap", "table"};
    const json_t *guard = json_object_get(row, "guard"), *targets = json_object_get(row, "targets");
    const size_t bytes = make_ops(to, json_object_get(row, "ops"));
    *block = (struct ptx_basic){.meets = json_integer_value(json_object_get(row, "meets")),
                                .begin = to,
                                .end = to + bytes,
                                .site = field(row, "site"),
                                .targets = (uint32_t)json_array_size(targets)};
    while (strcmp(ends[block->how], json_string_value(json_object_get(row, "end")))) block->how++;
    block->guarded = json_array_size(guard) && block->how != PTX_TABLE;
    if (json_array_size(guard)) block->guard = (uint32_t)number(guard, 0), block->negated = number(guard, 1);
    block->target = zeros(block->targets, sizeof *block->target);
    for (uint32_t i = 0; i < block->targets; i++) block->target[i] = (uint32_t)number(targets, i);
    return bytes;
}

static void make_sites(struct ptx_kernel *kernel, const json_t *rows) {
    kernel->sites = (uint32_t)json_array_size(rows);
    kernel->site = zeros(kernel->sites, sizeof *kernel->site);
    for (uint32_t i = 0; i < kernel->sites; i++) {
        const json_t *row = json_array_get(rows, i);
        kernel->site[i] =
            (struct ptx_site){need(strdup(text(row, 0))), need(strdup(text(row, 2))), (int)number(row, 1)};
    }
}

static void make_blocks(struct ptx_kernel *kernel, const json_t *rows) {
    size_t bytes = 0, i;
    const json_t *row;
    kernel->blocks = (uint32_t)json_array_size(rows);
    kernel->block = zeros(kernel->blocks, sizeof *kernel->block);
    kernel->kinds = zeros(kernel->blocks, sizeof *kernel->kinds);
    json_array_foreach(rows, i, row) bytes += make_ops(NULL, json_object_get(row, "ops"));
    char *ops = kernel->ops = need(malloc(bytes + 1));
    json_array_foreach(rows, i, row) {
        ops += make_block(&kernel->block[i], ops, row);
        for (size_t k = 0; k < PTX_KINDS; k++) kernel->kinds[i][k] = (uint16_t)number(json_object_get(row, "kinds"), k);
    }
}

static void make_kernel(const struct ptx_module *module, struct ptx_kernel *kernel, const json_t *row) {
    const json_t *arrays = json_object_get(row, "arrays"), *given = json_object_get(row, "parameters");
    kernel->parameter_bytes = field(row, "parameter_bytes");
    kernel->shared_bytes = field(row, "shared_bytes");
    kernel->static_bytes = field(row, "static_bytes");
    kernel->registers = field(row, "registers");
    kernel->local_bytes = field(row, "local_bytes");
    kernel->most_threads = field(row, "most_threads");
    kernel->frame_bytes = field(row, "frame_bytes");
    kernel->place_bytes = field(row, "place_bytes");
    kernel->arrays = (uint32_t)json_array_size(arrays);
    kernel->array = zeros(kernel->arrays, sizeof *kernel->array);
    for (uint32_t i = 0; i < kernel->arrays; i++)
        for (size_t k = 0; k < 2; k++) kernel->array[i][k] = (uint32_t)number(json_array_get(arrays, i), k);
    kernel->givens = (uint32_t)json_array_size(given);
    kernel->given = zeros(kernel->givens, sizeof *kernel->given);
    for (uint32_t i = 0; i < kernel->givens; i++) {
        const json_t *p = json_array_get(given, i);
        kernel->given[i] = (struct ptx_given){(uint32_t)number(p, 0), (uint32_t)number(p, 1), (uint32_t)number(p, 2),
                                              (uint32_t)number(p, 3), number(p, 4)};
    }
    make_sites(kernel, json_object_get(row, "sites"));
    make_blocks(kernel, json_object_get(row, "blocks"));
    make_constants(module, kernel, json_object_get(row, "constants"), field(row, "constant_bytes"));
}

/* ---- modules ---- */

/* All of the file, with a zero behind it; NULL after a line on stderr. */
static char *read_all(const char *path) {
    FILE *file = fopen(path, "re");
    char *all = NULL;
    if (file && !fseek(file, 0, SEEK_END)) {
        const long bytes = ftell(file);
        rewind(file);
        all = zeros((size_t)bytes + 1, 1);
        if (fread(all, 1, (size_t)bytes, file) == (size_t)bytes) {
            fclose(file);
            return all;
        }
    }
    perror(path);
    free(all);
    if (file) fclose(file);
    return NULL;
}

static json_t *read_line(const char *line) {
    json_error_t error;
    json_t *read = json_loadb(line, strcspn(line, "\n"), 0, &error);
    if (read) return read;
    fprintf(stderr, "ptx: a translated image: %s\n", error.text);
    abort();
}

struct ptx_module *ptx_open(const char *path) {
    struct ptx_module *module = zeros(1, sizeof *module);
    module->image = read_all(path);
    if (!module->image) {
        free(module);
        return NULL;
    }
    json_t *head = read_line(module->image);
    const json_t *names = json_object_get(head, "kernels");
    make_variables(module, json_object_get(head, "variables"));
    module->kernels = (uint32_t)json_array_size(names);
    module->kernel = zeros(module->kernels, sizeof *module->kernel);
    const char *line = module->image;
    for (uint32_t i = 0; i < module->kernels; i++) {
        line = strchr(line, '\n') + 1;
        module->kernel[i] = (struct ptx_kernel){.name = need(strdup(text(names, i))), .line = line};
    }
    json_decref(head);
    return module;
}

/* A kernel is made when it is launched for the first time: most never are. */
void ptx_kernel_make(const struct ptx_module *module, struct ptx_kernel *kernel) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (__atomic_load_n(&kernel->made, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&lock);
    if (!kernel->made) {
        json_t *row = read_line(kernel->line);
        make_kernel(module, kernel, row);
        json_decref(row);
        __atomic_store_n(&kernel->made, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

static void drop_kernel(struct ptx_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->blocks; i++) free(kernel->block[i].target);
    for (uint32_t i = 0; i < kernel->sites; i++) {
        free((char *)(uintptr_t)kernel->site[i].file);
        free((char *)(uintptr_t)kernel->site[i].text);
    }
    void *const parts[] = {kernel->name,  kernel->block, kernel->kinds,     kernel->array,
                           kernel->given, kernel->site,  kernel->constants, kernel->ops};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

void ptx_close(struct ptx_module *module) {
    for (uint32_t i = 0; i < module->kernels; i++) drop_kernel(&module->kernel[i]);
    for (uint32_t i = 0; i < module->variables; i++) {
        ptx_memory_free((void *)(uintptr_t)module->variable[i].at);
        free((void *)(uintptr_t)module->variable[i].at);
        free(module->variable[i].name);
    }
    free(module->kernel);
    free(module->variable);
    free(module->image);
    free(module);
}

const struct ptx_kernel *ptx_find(const struct ptx_module *module, const char *name) {
    for (uint32_t i = 0; i < module->kernels; i++)
        if (!strcmp(module->kernel[i].name, name)) return &module->kernel[i];
    return NULL;
}

void *ptx_variable(struct ptx_module *module, const char *name, size_t *bytes) {
    for (uint32_t i = 0; i < module->variables; i++) {
        if (strcmp(module->variable[i].name, name)) continue;
        *bytes = module->variable[i].bytes;
        return (void *)(uintptr_t)module->variable[i].at;
    }
    return NULL;
}
