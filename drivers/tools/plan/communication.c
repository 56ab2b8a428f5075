/* communication.c - traffic of data, pipeline and tensor parallelism, and the places of groups on nodes.
 *
 * Collectives are counted as on a ring: each of n members sends (n - 1) / n of the buffer to gather or to scatter
 * it, and twice as much to reduce it for all. The simulator counts alike (drivers/tools/search/predict.c), and these
 * formulas agree with it for the model in memory_section.c with one stage per rank.
 *
 * Coordinates of a tensor group have some columns of each state and some rows of each kernel. In the forward, a
 * product's result is scattered; in the backward, its gradient is gathered, and gathered again if the weight
 * gradient comes later, or if gradients are rounded. A layer's products have (5 + e) h result columns. Norms sum the
 * coordinates' parts of a row. */
#include <math.h>
#include <stdint.h>

#include "drivers/tools/plan/plan.h"

static const char *const axis_name[PLAN_ALONGS] = {"data", "pipeline", "tensor"};

static int axis_size(const struct plan_layout *layout, enum plan_along axis) {
    return axis == PLAN_ALONG_DATA ? layout->data : axis == PLAN_ALONG_STAGES ? layout->stages : layout->tensor;
}

/* ---- traffic ---- */

static const struct plan_traffic none = {"none", 0, 0};

/* Returns TIMES operations that send ALL bytes together. */
static struct plan_traffic traffic(const char *operation, double times, double all) {
    return times > 0 ? (struct plan_traffic){operation, times, all / times} : none;
}

/* Returns the traffic over data. FSDP gathers kernels for each use, and scatters the sums of their gradients; ZeRO 2
 * also scatters the layers' sums for each microbatch; all others are summed once. bf16 copies are gathered as bf16. */
static struct plan_traffic data_traffic(const struct plan_job *job, const struct plan_layout *layout,
                                        const struct plan_share *share, int microbatches) {
    const double part = (layout->data - 1.0) / layout->data, bytes = plan_gradient_bytes(layout->precision);
    const double scattered = part * bytes * share->kernels;
    const double gathered = part * plan_element_bytes(layout->precision) * share->kernels;
    const double halves = part * sizeof(uint16_t) * plan_count_halves(layout, share);
    const double rest = 2 * part * bytes * share->rest - halves;
    if (!layout->trains) return layout->zero >= 3 ? traffic("gather", microbatches, microbatches * gathered) : none;
    const double freed = plan_count_freed(job, layout, share), again = freed > 0 ? microbatches - 1 : 0;
    if (layout->zero < 3)
        return traffic(layout->zero ? "scatter, then gather" : "all-reduce", 1 + again,
                       2 * scattered + rest + again * part * bytes * freed);
    return traffic("gather twice, scatter", 3.0 * microbatches, microbatches * (2 * gathered + scattered) + rest);
}

/* Returns the traffic over tensor coordinates. The forward is counted, twice with recomputation; the backward once,
 * or twice if weight gradients come late. Messages are float, independent of the storage type, except gradients that
 * both products of a backward read. */
static struct plan_traffic tensor_traffic(const struct plan_job *job, const struct plan_layout *layout,
                                          const struct plan_share *share, int microbatches) {
    const double tensor = layout->tensor, part = (tensor - 1) / tensor, bytes = plan_gradient_bytes(layout->precision);
    const double sum = 2 * part * bytes * layout->samples * job->sequence; /* one number per token */
    const double state = part * bytes * layout->samples * job->sequence * job->hidden;
    const bool late = !share->first;
    const int forward = layout->trains && layout->recompute ? 2 : 1, backward = layout->trains ? 1 + late : 0;
    const double passes = (double)share->layers * (forward + backward);
    const double kept = plan_element_bytes(layout->precision) / bytes; /* relative to a float */
    const double states = share->layers * (forward + kept * backward);
    double all = states * (5 + job->expansion) * state + share->layers * 4.0 * (forward + layout->trains) * sum;
    if (share->first) all += (1 + layout->trains) * state / tensor;
    if (share->last) all += layout->trains ? 2 * state + 4 * sum : state + 2 * sum;
    return traffic("scatter, gather", passes * microbatches, all * microbatches);
}

/* Returns the traffic to the next rank, and back. Shares of a head send the looked-up rows, then the state, its
 * gradient and the label's row; and back, a gradient. */
static struct plan_traffic pipeline_traffic(const struct plan_job *job, const struct plan_layout *layout,
                                            const struct plan_share *share, int microbatches) {
    const double state = plan_element_bytes(layout->precision) * layout->samples * job->sequence * job->hidden;
    const int next = !share->last, before = !share->first && layout->trains;
    const double states = next + before + (layout->spread_head ? 6 : 0);
    return traffic("send and receive", states * microbatches, states * microbatches * state / layout->tensor);
}

static struct plan_traffic traffic_at(const struct plan_job *job, const struct plan_layout *layout,
                                      enum plan_along along, int microbatches, enum plan_place place) {
    const struct plan_share share = plan_share_of(job, layout, place);
    if (axis_size(layout, along) == 1) return none;
    if (along == PLAN_ALONG_DATA) return data_traffic(job, layout, &share, microbatches);
    if (along == PLAN_ALONG_TENSOR) return tensor_traffic(job, layout, &share, microbatches);
    return pipeline_traffic(job, layout, &share, microbatches);
}

/* Returns the rank with the largest traffic per device, along all axes together. */
static enum plan_place busiest(const struct plan_job *job, const struct plan_layout *layout, int microbatches) {
    enum plan_place most = PLAN_FIRST;
    double sent = -1;
    for (enum plan_place place = PLAN_FIRST; place < PLAN_PLACES; place++) {
        double bytes = 0;
        if (place == PLAN_MIDDLE && layout->stages < 3) continue;
        for (enum plan_along axis = 0; axis < PLAN_ALONGS; axis++) {
            const struct plan_traffic of = traffic_at(job, layout, axis, microbatches, place);
            bytes += of.times * of.bytes;
        }
        if (bytes <= sent) continue;
        sent = bytes;
        most = place;
    }
    return most;
}

struct plan_traffic plan_traffic_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_along along,
                                    int microbatches) {
    return traffic_at(job, layout, along, microbatches, busiest(job, layout, microbatches));
}

static const struct plan_field traffic_field[] = {{"axis", "axis", -9, PLAN_FIELD_TEXT},
                                                  {"size", "size", 5, PLAN_FIELD_COUNT},
                                                  {"operation", "operation", -22, PLAN_FIELD_TEXT},
                                                  {"times", "times", 8, PLAN_FIELD_COUNT},
                                                  {"bytes_each", "sent each", 12, PLAN_FIELD_BYTES},
                                                  {"bytes", "sent", 13, PLAN_FIELD_BYTES},
                                                  {"times_a_microbatch", "a microbatch", 12, PLAN_FIELD_REAL},
                                                  {0}};

int plan_print_communication(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const struct plan_layout layout = plan_layout_of(job);
    plan_rows_begin(rows, "communication", "Communication: what a device sends for one update, the rarest first",
                    traffic_field);
    for (enum plan_along axis = 0; axis < PLAN_ALONGS; axis++) {
        const struct plan_traffic traffic = plan_traffic_of(job, &layout, axis, job->microbatches);
        const union plan_value value[] = {{.text = axis_name[axis]},
                                          {.number = axis_size(&layout, axis)},
                                          {.text = traffic.operation},
                                          {.number = traffic.times},
                                          {.number = traffic.bytes},
                                          {.number = traffic.times * traffic.bytes},
                                          {.number = traffic.times / job->microbatches}};
        SL_TRY(plan_rows_add(rows, value, error));
    }
    return SL_OK;
}

/* ---- replicas on nodes ---- */

/* Returns the distance of neighbours along AXIS, in device numbers. */
static int stride_of(const struct plan_layout *layout, const enum plan_along *order, enum plan_along axis) {
    int stride = 1;
    for (int i = PLAN_ALONGS - 1; order[i] != axis; i--) stride *= axis_size(layout, order[i]);
    return stride;
}

bool plan_crosses_nodes(const struct plan_job *job, const struct plan_layout *layout, const enum plan_along *order,
                        enum plan_along axis) {
    const int stride = stride_of(layout, order, axis), size = axis_size(layout, axis);
    const int devices = layout->data * layout->stages * layout->tensor;
    for (int block = 0; block < devices; block += stride * size) { /* groups in a block differ by less than STRIDE */
        for (int first = block; first < block + stride; first++) {
            if (first / job->node != (first + stride * (size - 1)) / job->node) return true;
        }
    }
    return false;
}

/* Returns the seconds of communication per update with the axes in ORDER. */
static double seconds_of(const struct plan_job *job, const struct plan_layout *layout, const enum plan_along *order,
                         enum plan_along axis) {
    const struct plan_traffic traffic = plan_traffic_of(job, layout, axis, job->microbatches);
    const double rate = plan_crosses_nodes(job, layout, order, axis) ? job->slow : job->fast;
    return traffic.times * traffic.bytes / (1e9 * rate);
}

static const enum plan_along orders[][PLAN_ALONGS] = {
    {PLAN_ALONG_DATA, PLAN_ALONG_STAGES, PLAN_ALONG_TENSOR}, {PLAN_ALONG_STAGES, PLAN_ALONG_DATA, PLAN_ALONG_TENSOR},
    {PLAN_ALONG_DATA, PLAN_ALONG_TENSOR, PLAN_ALONG_STAGES}, {PLAN_ALONG_TENSOR, PLAN_ALONG_DATA, PLAN_ALONG_STAGES},
    {PLAN_ALONG_STAGES, PLAN_ALONG_TENSOR, PLAN_ALONG_DATA}, {PLAN_ALONG_TENSOR, PLAN_ALONG_STAGES, PLAN_ALONG_DATA}};
enum { ORDERS = sizeof orders / sizeof *orders };

/* Prints the devices: a line per stage of each replica, if they are few. */
static void print_devices(const struct plan_rows *rows, const struct plan_job *job) {
    if (job->data * job->stages * job->tensor > 64) return;
    for (int d = 0; d < job->data; d++) {
        for (int p = 0; p < job->stages; p++) {
            const int first = (d * job->stages + p) * job->tensor, last = first + job->tensor - 1;
            plan_rows_note(rows, "data %d, stage %d: device%s %d", d, p, job->tensor > 1 ? "s" : "", first);
            if (job->tensor > 1) plan_rows_note(rows, " to %d", last);
            plan_rows_note(rows, ", node %d", first / job->node);
            if (last / job->node != first / job->node) plan_rows_note(rows, " to %d", last / job->node);
            plan_rows_note(rows, "\n");
        }
    }
    plan_rows_note(rows, "\n");
}

static const struct plan_field replica_field[] = {
    {"order", "order, slowest first", -24, PLAN_FIELD_TEXT}, {"replicas", "devices", 8, PLAN_FIELD_COUNT},
    {"slow", "between nodes", -24, PLAN_FIELD_TEXT},         {"data_s", "data s", 10, PLAN_FIELD_REAL},
    {"pipeline_s", "pipeline s", 10, PLAN_FIELD_REAL},       {"tensor_s", "tensor s", 10, PLAN_FIELD_REAL},
    {"communication_s", "all s", 10, PLAN_FIELD_REAL},       {0}};

int plan_print_replicas(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const struct plan_layout layout = plan_layout_of(job);
    plan_rows_note(rows, "Replicas: %d data x %d pipeline x %d tensor = %d devices, %d a node\n\n", job->data,
                   job->stages, job->tensor, job->data * job->stages * job->tensor, job->node);
    print_devices(rows, job);
    plan_rows_begin(rows, "replicas",
                    "Time to send in one update, by how the groups lie on nodes: those that communicate most belong\n"
                    "together.",
                    replica_field);
    for (int i = 0; i < ORDERS; i++) {
        double second[PLAN_ALONGS], all = 0;
        char order[64], slow[64] = "none";
        int used = 0;
        snprintf(order, sizeof order, "%s, %s, %s", axis_name[orders[i][0]], axis_name[orders[i][1]],
                 axis_name[orders[i][2]]);
        for (enum plan_along axis = 0; axis < PLAN_ALONGS; axis++) {
            all += second[axis] = seconds_of(job, &layout, orders[i], axis);
            if (axis_size(&layout, axis) == 1 || !plan_crosses_nodes(job, &layout, orders[i], axis)) continue;
            used += snprintf(slow + used, sizeof slow - (size_t)used, "%s%s", used ? ", " : "", axis_name[axis]);
        }
        const union plan_value value[] = {{.text = order},
                                          {.number = (double)job->data * job->stages * job->tensor},
                                          {.text = slow},
                                          {.number = second[PLAN_ALONG_DATA]},
                                          {.number = second[PLAN_ALONG_STAGES]},
                                          {.number = second[PLAN_ALONG_TENSOR]},
                                          {.number = all}};
        SL_TRY(plan_rows_add(rows, value, error));
    }
    return SL_OK;
}
