/* machine_file.c - reads and writes machines. The file's units: GFLOP/s, 1e9 elements a second, microseconds, GB/s,
 * GB. */
#include "drivers/tools/machine/machine_file.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"

enum { MOST_PLACES = 1 << 20, MOST_SIZE = 1 << 30 };

/* ---- reading ---- */

struct reading {
    const char *path;
    struct sl_machine *machine;
    struct sl_error *error;
};

SL_PRINTF(2, 3) static int refuse(const struct reading *r, const char *format, ...) {
    char text[160];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s", r->path, text);
}

/* Refuses unknown keys. WHERE names OBJECT in messages. */
static int check_keys(const struct reading *r, const char *where, json_t *object, const char *const *known) {
    const char *key;
    json_t *value;
    char list[160] = "";
    for (int i = 0; known[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", known[i]);
    if (!json_is_object(object)) return refuse(r, "%s must be an object with %s", where, list);
    json_object_foreach(object, key, value) {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i]) return refuse(r, "%s has a key \"%.30s\", but there are only %s", where, key, list);
    }
    return SL_OK;
}

/* Reads the number of KEY; without it VALUE is unchanged. */
static int read_number(const struct reading *r, const char *where, json_t *object, const char *key, double least,
                       double most, double *value) {
    json_t *number = json_object_get(object, key);
    if (!number) return SL_OK;
    const double read = json_is_number(number) ? json_number_value(number) : NAN;
    if (!(read >= least && read <= most))
        return refuse(r, "%s: \"%s\" must be a number from %g to %g", where, key, least, most);
    *value = read;
    return SL_OK;
}

static int read_count(const struct reading *r, const char *where, json_t *object, const char *key, int least, int most,
                      int *value) {
    json_t *number = json_object_get(object, key);
    if (!number) return SL_OK;
    const json_int_t read = json_is_integer(number) ? json_integer_value(number) : (json_int_t)least - 1;
    if (read < least || read > most)
        return refuse(r, "%s: \"%s\" must be a whole number from %d to %d", where, key, least, most);
    *value = (int)read;
    return SL_OK;
}

/* Reads "speeds": [1, 0.96], of a node's first places; optional. */
static int read_speeds(const struct reading *r, json_t *list, struct sl_machine_nodes *nodes) {
    const int most = nodes->places < SL_MACHINE_SPEEDS ? nodes->places : SL_MACHINE_SPEEDS;
    size_t i;
    json_t *number;
    if (!list) return SL_OK;
    if (!json_is_array(list) || json_array_size(list) > (size_t)most)
        return refuse(r, "nodes: \"speeds\" must be a list of at most %d numbers, one a place", most);
    json_array_foreach(list, i, number) {
        nodes->speeds[i] = json_is_number(number) ? json_number_value(number) : NAN;
        if (!(nodes->speeds[i] >= 1e-6 && nodes->speeds[i] <= 1e6))
            return refuse(r, "nodes: each of \"speeds\" must be a number from 1e-06 to 1e+06");
    }
    return SL_OK;
}

static int read_nodes(const struct reading *r, json_t *list) {
    static const char *const keys[] = {"count",   "places",    "shares", "core",   "gpus",
                                       "package", "memory_gb", "speed",  "speeds", NULL};
    struct sl_machine *machine = r->machine;
    size_t i;
    json_t *object;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > SL_MACHINE_NODES)
        return refuse(r, "\"nodes\" must be a list of 1 to %d objects", SL_MACHINE_NODES);
    json_array_foreach(list, i, object) {
        struct sl_machine_nodes *nodes = &machine->nodes[machine->kinds++];
        json_t *shares = json_object_get(object, "shares");
        double gigabytes = 0;
        *nodes = (struct sl_machine_nodes){.count = 1, .places = 1, .speed = 1};
        SL_TRY(check_keys(r, "an object of \"nodes\"", object, keys));
        SL_TRY(read_count(r, "nodes", object, "count", 1, MOST_PLACES, &nodes->count));
        SL_TRY(read_count(r, "nodes", object, "places", 1, MOST_PLACES, &nodes->places));
        SL_TRY(read_count(r, "nodes", object, "core", 0, MOST_PLACES, &nodes->core));
        SL_TRY(read_count(r, "nodes", object, "gpus", 0, MOST_PLACES, &nodes->gpus));
        SL_TRY(read_count(r, "nodes", object, "package", 0, MOST_PLACES, &nodes->package));
        SL_TRY(read_number(r, "nodes", object, "memory_gb", 0, 1e9, &gigabytes));
        SL_TRY(read_number(r, "nodes", object, "speed", 1e-6, 1e6, &nodes->speed));
        SL_TRY(read_speeds(r, json_object_get(object, "speeds"), nodes));
        if (shares && !json_is_boolean(shares)) return refuse(r, "nodes: \"shares\" must be true or false");
        nodes->shares = json_is_true(shares);
        nodes->memory = 1e9 * gigabytes;
    }
    return SL_OK;
}

static bool read_type(const char *name, enum sl_dtype *type) {
    *type = !strcmp(name, "bf16") ? SL_BF16 : SL_F32;
    return *type == SL_BF16 || !strcmp(name, "f32");
}

/* ["f32", m, n, k, "NT", GFLOP/s] */
static int read_product(const struct reading *r, json_t *row) {
    struct sl_machine_product *product = &r->machine->product[r->machine->products];
    const char *type, *way;
    const int status =
        json_is_array(row) && json_array_size(row) == 6
            ? json_unpack(row, "[s,i,i,i,s,F]", &type, &product->m, &product->n, &product->k, &way, &product->gflops)
            : -1;
    const bool sized = !status && product->m >= 1 && product->n >= 1 && product->k >= 1 && product->m <= MOST_SIZE &&
                       product->n <= MOST_SIZE && product->k <= MOST_SIZE;
    const bool turned = !status && strlen(way) == 2 && strspn(way, "NT") == 2;
    if (!sized || !turned || !read_type(type, &product->type) || !(product->gflops > 1e-9 && product->gflops < 1e12))
        return refuse(r, "a row of \"products\" must be [\"f32\" or \"bf16\", m, n, k, \"NN\", \"NT\", \"TN\" or "
                         "\"TT\", GFLOP/s]");
    product->a_transposed = way[0] == 'T';
    product->b_transposed = way[1] == 'T';
    r->machine->products++;
    return SL_OK;
}

static int read_products(const struct reading *r, json_t *list) {
    size_t i;
    json_t *row;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > SL_MACHINE_PRODUCTS)
        return refuse(r, "\"products\" must be a list of 1 to %d rows", SL_MACHINE_PRODUCTS);
    json_array_foreach(list, i, row) SL_TRY(read_product(r, row));
    return SL_OK;
}

static int read_kernels(const struct reading *r, json_t *object) {
    const char *keys[SL_MACHINE_KERNELS + 1] = {0};
    for (int k = 0; k < SL_MACHINE_KERNELS; k++) keys[k] = sl_machine_kernel_name[k];
    SL_TRY(check_keys(r, "\"kernels\"", object, keys));
    for (int k = 0; k < SL_MACHINE_KERNELS; k++) {
        double rate = 0;
        SL_TRY(read_number(r, "kernels", object, keys[k], 1e-6, 1e9, &rate));
        if (rate == 0) return refuse(r, "\"kernels\" lacks \"%s\"", keys[k]);
        r->machine->kernel[k] = 1e-9 / rate;
    }
    return SL_OK;
}

/* Reads the links. A missing link is as the next nearer one, or, without one, as the next farther one. */
static int read_links(const struct reading *r, json_t *object) {
    static const char *const keys[] = {"latency_us", "gb_per_s", NULL};
    const char *names[SL_LINKS + 1] = {0};
    double latency = 0, bandwidth = 0;
    int first = 0;
    for (int l = 0; l < SL_LINKS; l++) names[l] = sl_link_name[l];
    SL_TRY(check_keys(r, "\"links\"", object, names));
    for (int l = 0; l < SL_LINKS; l++) {
        json_t *link = json_object_get(object, names[l]);
        if (link) {
            SL_TRY(check_keys(r, names[l], link, keys));
            SL_TRY(read_number(r, names[l], link, "latency_us", 0, 1e9, &latency));
            SL_TRY(read_number(r, names[l], link, "gb_per_s", 1e-9, 1e9, &bandwidth));
        }
        if (link && bandwidth == 0) return refuse(r, "\"links\" lacks \"gb_per_s\" of \"%s\"", names[l]);
        if (bandwidth == 0) first = l + 1;
        r->machine->latency[l] = 1e-6 * latency;
        r->machine->bandwidth[l] = 1e9 * bandwidth;
    }
    if (first == SL_LINKS) return refuse(r, "\"links\" must have one of the links, with \"gb_per_s\"");
    for (int l = 0; l < first; l++) {
        r->machine->latency[l] = r->machine->latency[first];
        r->machine->bandwidth[l] = r->machine->bandwidth[first];
    }
    return SL_OK;
}

/* Reads [[MB, GB/s], ...]; optional. */
static int read_memory(const struct reading *r, json_t *list) {
    struct sl_machine *machine = r->machine;
    size_t i;
    json_t *row;
    if (!list) return SL_OK;
    if (!json_is_array(list) || json_array_size(list) > SL_MACHINE_SIZES)
        return refuse(r, "\"memory\" must be a list of at most %d rows", SL_MACHINE_SIZES);
    json_array_foreach(list, i, row) {
        double size = 0, rate = 0;
        const bool read = json_is_array(row) && json_array_size(row) == 2 && !json_unpack(row, "[F,F]", &size, &rate);
        const double before = i ? machine->memory[i - 1].bytes : 0;
        if (!read || !(1e6 * size > before && size <= 1e9 && rate >= 1e-6 && rate <= 1e9))
            return refuse(r, "a row of \"memory\" must be [MB, GB/s], with more MB than the one before");
        machine->memory[machine->sizes++] = (struct sl_machine_memory){1e6 * size, 1e9 * rate};
    }
    return SL_OK;
}

/* Times in microseconds; missing ones are 0. */
struct time {
    const char *key;
    double *seconds;
};

enum { TIMES = 4 };

static void list_waits(struct sl_machine_waits *waits, struct time *time) {
    const struct time list[] = {
        {"wake_us", &waits->wake}, {"notify_us", &waits->notify}, {"awake_us", &waits->awake}, {"nap_us", &waits->nap}};
    memcpy(time, list, sizeof list);
}

static void list_turns(struct sl_machine_turns *turns, struct time *time) {
    const struct time list[] = {{"message_us", &turns->message}, {"call_us", &turns->call}, {0}, {0}};
    memcpy(time, list, sizeof list);
}

/* Reads the times. OTHER and LAST, or NULL, are keys of the object without times. */
static int read_times(const struct reading *r, json_t *root, const char *name, const struct time *time,
                      const char *other, const char *last) {
    const char *keys[TIMES + 3] = {0};
    json_t *object = json_object_get(root, name);
    int known = 0;
    for (; known < TIMES && time[known].key; known++) keys[known] = time[known].key;
    keys[known] = other;
    keys[known + 1] = last;
    if (!object) return SL_OK;
    SL_TRY(check_keys(r, name, object, keys));
    for (int i = 0; i < TIMES && time[i].key; i++) {
        double us = 0;
        SL_TRY(read_number(r, name, object, time[i].key, 0, 1e9, &us));
        *time[i].seconds = 1e-6 * us;
    }
    return SL_OK;
}

/* Reads "calls": [[members, us, gb_per_s], ...]; optional, as in older files: all groups are then alike. gb_per_s is
 * optional, too. */
static int read_groups(const struct reading *r, const char *name, json_t *list, struct sl_machine_turns *turns) {
    size_t i;
    json_t *row;
    if (!list) return SL_OK;
    if (!json_is_array(list) || json_array_size(list) > SL_MACHINE_GROUPS)
        return refuse(r, "%s: \"calls\" must be a list of at most %d rows", name, SL_MACHINE_GROUPS);
    json_array_foreach(list, i, row) {
        int members = 0;
        double us = 0, rate = 0;
        const size_t columns = json_is_array(row) ? json_array_size(row) : 0;
        const bool read = (columns == 2 && !json_unpack(row, "[i,F]", &members, &us)) ||
                          (columns == 3 && !json_unpack(row, "[i,F,F]", &members, &us, &rate));
        const int before = i ? turns->group[i - 1].members : 1;
        if (!read || members <= before || members > MOST_PLACES || !(us >= 0 && us <= 1e9 && rate >= 0 && rate <= 1e9))
            return refuse(r,
                          "%s: a row of \"calls\" must be [members, us, gb_per_s], with 2 members or more, and more "
                          "than the row before",
                          name);
        turns->group[turns->groups++] = (struct sl_machine_group){members, 1e-6 * us, 1e9 * rate};
    }
    return SL_OK;
}

static int read_turns(const struct reading *r, json_t *root, const char *name, struct sl_machine_turns *turns) {
    struct time time[TIMES];
    json_t *object = json_object_get(root, name);
    list_turns(turns, time);
    SL_TRY(read_times(r, root, name, time, "calls", "idle"));
    SL_TRY(read_number(r, name, object, "idle", 0, 0.9, &turns->idle));
    return read_groups(r, name, json_object_get(object, "calls"), turns);
}

static int read_waits(const struct reading *r, json_t *root) {
    struct time time[TIMES];
    list_waits(&r->machine->waits, time);
    SL_TRY(read_times(r, root, "waiting", time, "spread", NULL));
    json_t *object = json_object_get(root, "waiting");
    if (!json_object_get(object, "nap_us")) r->machine->waits.nap = r->machine->waits.wake; /* as in older files */
    SL_TRY(read_number(r, "waiting", object, "spread", 0, 1, &r->machine->waits.spread));
    SL_TRY(read_turns(r, root, "tied", &r->machine->tied));
    return read_turns(r, root, "roaming", &r->machine->roaming);
}

static int read_machine(const struct reading *r, json_t *root) {
    static const char *const keys[] = {"name",         "nodes",     "products", "kernels", "attention_gflops",
                                       "far_gb_per_s", "action_us", "links",    "memory",  "waiting",
                                       "tied",         "roaming",   NULL};
    json_t *name = json_object_get(root, "name");
    double attention = 0, action = 1, far = 1e-9 * SL_MACHINE_FAR;
    SL_TRY(check_keys(r, "a machine", root, keys));
    if (!json_is_string(name)) return refuse(r, "\"name\" must be a text");
    snprintf(r->machine->name, sizeof r->machine->name, "%s", json_string_value(name));
    for (char *c = r->machine->name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    SL_TRY(read_nodes(r, json_object_get(root, "nodes")));
    SL_TRY(read_products(r, json_object_get(root, "products")));
    SL_TRY(read_kernels(r, json_object_get(root, "kernels")));
    SL_TRY(read_number(r, "a machine", root, "attention_gflops", 1e-9, 1e12, &attention));
    if (attention == 0) return refuse(r, "a machine must have \"attention_gflops\"");
    SL_TRY(read_number(r, "a machine", root, "action_us", 0, 1e9, &action));
    SL_TRY(read_number(r, "a machine", root, "far_gb_per_s", 1e-9, 1e9, &far));
    r->machine->far = 1e9 * far;
    r->machine->attention = 1e9 / 2 * attention;
    r->machine->action = 1e-6 * action;
    SL_TRY(read_memory(r, json_object_get(root, "memory")));
    SL_TRY(read_waits(r, root));
    return read_links(r, json_object_get(root, "links"));
}

int sl_machine_read(struct sl_machine *machine, const char *path, struct sl_error *error) {
    const struct reading r = {path, machine, error};
    *machine = (struct sl_machine){0};
    json_t *root = sl_json_read("", path, JSON_REJECT_DUPLICATES, error);
    if (!root) return SL_BAD_INPUT;
    const int status = read_machine(&r, root);
    json_decref(root);
    if (status) *machine = (struct sl_machine){0};
    return status;
}

/* ---- writing ---- */

/* Returns NULL if all places are alike. */
static json_t *json_of_speeds(const struct sl_machine_nodes *nodes) {
    json_t *list = nodes->speeds[0] > 0 ? json_array() : NULL;
    for (int i = 0; list && i < nodes->places && i < SL_MACHINE_SPEEDS && nodes->speeds[i] > 0; i++)
        json_array_append_new(list, sl_json_real(nodes->speeds[i]));
    return list;
}

static json_t *json_of_nodes(const struct sl_machine *machine) {
    json_t *list = json_array();
    for (int k = 0; k < machine->kinds; k++) {
        const struct sl_machine_nodes *nodes = &machine->nodes[k];
        json_array_append_new(list, json_pack("{si si sb si si si sf sf so*}", "count", nodes->count, "places",
                                              nodes->places, "shares", nodes->shares, "core", nodes->core, "gpus",
                                              nodes->gpus, "package", nodes->package, "memory_gb", 1e-9 * nodes->memory,
                                              "speed", nodes->speed, "speeds", json_of_speeds(nodes)));
    }
    return list;
}

static json_t *json_of_products(const struct sl_machine *machine) {
    json_t *list = json_array();
    for (int i = 0; i < machine->products; i++) {
        const struct sl_machine_product *x = &machine->product[i];
        const char way[] = {x->a_transposed ? 'T' : 'N', x->b_transposed ? 'T' : 'N', '\0'};
        json_array_append_new(
            list, json_pack("[siiisf]", x->type == SL_BF16 ? "bf16" : "f32", x->m, x->n, x->k, way, x->gflops));
    }
    return list;
}

static json_t *json_of_kernels(const struct sl_machine *machine) {
    json_t *object = json_object();
    for (int k = 0; k < SL_MACHINE_KERNELS; k++)
        json_object_set_new(object, sl_machine_kernel_name[k], sl_json_real(1e-9 / machine->kernel[k]));
    return object;
}

static json_t *json_of_links(const struct sl_machine *machine) {
    json_t *object = json_object();
    for (int l = 0; l < SL_LINKS; l++)
        json_object_set_new(
            object, sl_link_name[l],
            json_pack("{sf sf}", "latency_us", 1e6 * machine->latency[l], "gb_per_s", 1e-9 * machine->bandwidth[l]));
    return object;
}

static json_t *json_of_memory(const struct sl_machine *machine) {
    json_t *list = json_array();
    for (int i = 0; i < machine->sizes; i++)
        json_array_append_new(list,
                              json_pack("[ff]", 1e-6 * machine->memory[i].bytes, 1e-9 * machine->memory[i].bandwidth));
    return list;
}

static json_t *json_of_times(const struct time *time) {
    json_t *object = json_object();
    for (int i = 0; i < TIMES && time[i].key; i++)
        json_object_set_new(object, time[i].key, sl_json_real(1e6 * *time[i].seconds));
    return object;
}

static json_t *json_of_waits(struct sl_machine_waits waits) {
    struct time time[TIMES];
    list_waits(&waits, time);
    json_t *object = json_of_times(time);
    json_object_set_new(object, "spread", sl_json_real(waits.spread));
    return object;
}

static json_t *json_of_turns(struct sl_machine_turns turns) {
    struct time time[TIMES];
    list_turns(&turns, time);
    json_t *object = json_of_times(time), *list = turns.groups ? json_array() : NULL;
    for (int i = 0; i < turns.groups; i++)
        json_array_append_new(list, json_pack("[iff]", turns.group[i].members, 1e6 * turns.group[i].call,
                                              1e-9 * turns.group[i].bandwidth));
    if (list) json_object_set_new(object, "calls", list);
    json_object_set_new(object, "idle", sl_json_real(turns.idle));
    return object;
}

/* Prints one row per line, for people. */
static bool print(FILE *stream, const struct sl_machine *machine) {
    json_t *root = json_pack("{ss so so so sf sf sf so so so so so}", "name", machine->name, "nodes",
                             json_of_nodes(machine), "products", json_of_products(machine), "kernels",
                             json_of_kernels(machine), "attention_gflops", 2e-9 * machine->attention, "far_gb_per_s",
                             1e-9 * machine->far, "action_us", 1e6 * machine->action, "links", json_of_links(machine),
                             "memory", json_of_memory(machine), "waiting", json_of_waits(machine->waits), "tied",
                             json_of_turns(machine->tied), "roaming", json_of_turns(machine->roaming));
    const char *key;
    json_t *value, *row;
    size_t i;
    bool first = true;
    if (!root) return false;
    json_object_foreach(root, key, value) {
        fprintf(stream, "%s\"%s\": ", first ? "{\n" : ",\n", key);
        first = false;
        if (json_is_array(value)) {
            fputs("[", stream);
            json_array_foreach(value, i, row) {
                fputs(i ? ",\n " : "\n ", stream);
                json_dumpf(row, stream, JSON_REAL_PRECISION(6));
            }
            fputs("\n]", stream);
        } else {
            json_dumpf(value, stream, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        }
    }
    fputs("\n}\n", stream);
    json_decref(root);
    return true;
}

int sl_machine_write(const struct sl_machine *machine, const char *path, struct sl_error *error) {
    struct sl_output output;
    SL_TRY(sl_output_open(&output, path, error));
    const int status = print(output.stream, machine)
                           ? SL_OK
                           : sl_error_set(error, SL_FAILED, "%s: no memory to describe the machine", path);
    return sl_output_close(&output, status, error);
}
