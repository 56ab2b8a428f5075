/* communication.c - what data, pipeline and tensor parallelism send, and how groups lie on nodes.
 *
 * Collectives are counted as on a ring: of n members each sends (n - 1) / n of the buffer to gather or to scatter it,
 * and twice as much to reduce it for all. A layer is reduced over the tensor group after its attention and after its
 * perceptron, forward and backward; recomputation does the forward's again. */
#include <math.h>

#include "drivers/plan/plan.h"

static const char *const axis_name[SL_ALONGS] = {"data", "pipeline", "tensor"};

static int axis_size(const struct sl_layout *layout, enum sl_along axis) {
    return axis == SL_ALONG_DATA ? layout->data : axis == SL_ALONG_STAGES ? layout->stages : layout->tensor;
}

/* ---- traffic ---- */

static struct sl_traffic data_traffic(const struct sl_job *job, const struct sl_layout *layout, int microbatches) {
    const double parameters = sl_count_parameters(job, layout->stages, layout->tensor);
    const double share = (layout->data - 1.0) / layout->data * parameters * sl_element_bytes(layout->precision);
    if (layout->zero >= 3 && layout->trains)
        return (struct sl_traffic){"gather twice, scatter", 3.0 * microbatches, share};
    if (layout->zero >= 3) return (struct sl_traffic){"gather", microbatches, share};
    if (!layout->trains) return (struct sl_traffic){"none", 0, 0};
    return (struct sl_traffic){layout->zero ? "scatter, then gather" : "all-reduce", 1, 2 * share};
}

static double state_bytes(const struct sl_job *job, const struct sl_layout *layout) {
    return layout->samples * job->sequence * job->hidden * sl_element_bytes(layout->precision);
}

static struct sl_traffic tensor_traffic(const struct sl_job *job, const struct sl_layout *layout, int microbatches) {
    const double layers = ceil((double)job->layers / layout->stages);
    const double reductions = layout->trains ? (layout->recompute ? 6 : 4) : 2;
    const double share = (layout->tensor - 1.0) / layout->tensor;
    return (struct sl_traffic){"all-reduce", reductions * layers * microbatches, 2 * share * state_bytes(job, layout)};
}

struct sl_traffic sl_traffic_of(const struct sl_job *job, const struct sl_layout *layout, enum sl_along along,
                                int microbatches) {
    if (axis_size(layout, along) == 1) return (struct sl_traffic){"none", 0, 0};
    if (along == SL_ALONG_DATA) return data_traffic(job, layout, microbatches);
    if (along == SL_ALONG_TENSOR) return tensor_traffic(job, layout, microbatches);
    return (struct sl_traffic){"send and receive", (layout->trains ? 2.0 : 1.0) * microbatches,
                               state_bytes(job, layout)};
}

static const struct sl_field traffic_field[] = {{"axis", "axis", -9, SL_FIELD_TEXT},
                                                {"size", "size", 5, SL_FIELD_COUNT},
                                                {"operation", "operation", -22, SL_FIELD_TEXT},
                                                {"times", "times", 8, SL_FIELD_COUNT},
                                                {"bytes_each", "sent each", 12, SL_FIELD_BYTES},
                                                {"bytes", "sent", 13, SL_FIELD_BYTES},
                                                {"times_a_microbatch", "a microbatch", 12, SL_FIELD_REAL},
                                                {0}};

int sl_plan_communication(struct sl_rows *rows, const struct sl_job *job, struct sl_error *error) {
    const struct sl_layout layout = sl_layout_of(job);
    sl_rows_begin(rows, "communication", "Communication: what a device sends for one update, the rarest first",
                  traffic_field);
    for (enum sl_along axis = 0; axis < SL_ALONGS; axis++) {
        const struct sl_traffic traffic = sl_traffic_of(job, &layout, axis, job->microbatches);
        const union sl_value value[] = {{.text = axis_name[axis]},
                                        {.number = axis_size(&layout, axis)},
                                        {.text = traffic.operation},
                                        {.number = traffic.times},
                                        {.number = traffic.bytes},
                                        {.number = traffic.times * traffic.bytes},
                                        {.number = traffic.times / job->microbatches}};
        SL_TRY(sl_rows_add(rows, value, error));
    }
    return SL_OK;
}

/* ---- replicas on nodes ---- */

/* How far apart in device number neighbours along AXIS are. */
static int stride_of(const struct sl_layout *layout, const enum sl_along *order, enum sl_along axis) {
    int stride = 1;
    for (int i = SL_ALONGS - 1; order[i] != axis; i--) stride *= axis_size(layout, order[i]);
    return stride;
}

bool sl_crosses_nodes(const struct sl_job *job, const struct sl_layout *layout, const enum sl_along *order,
                      enum sl_along axis) {
    const int stride = stride_of(layout, order, axis), size = axis_size(layout, axis);
    const int devices = layout->data * layout->stages * layout->tensor;
    for (int block = 0; block < devices;
         block += stride * size) { /* the groups in a block differ by less than STRIDE */
        for (int first = block; first < block + stride; first++) {
            if (first / job->node != (first + stride * (size - 1)) / job->node) return true;
        }
    }
    return false;
}

/* Seconds of communication in an update when the axes lie in ORDER. */
static double seconds_of(const struct sl_job *job, const struct sl_layout *layout, const enum sl_along *order,
                         enum sl_along axis) {
    const struct sl_traffic traffic = sl_traffic_of(job, layout, axis, job->microbatches);
    const double rate = sl_crosses_nodes(job, layout, order, axis) ? job->slow : job->fast;
    return traffic.times * traffic.bytes / (1e9 * rate);
}

static const enum sl_along orders[][SL_ALONGS] = {
    {SL_ALONG_DATA, SL_ALONG_STAGES, SL_ALONG_TENSOR}, {SL_ALONG_STAGES, SL_ALONG_DATA, SL_ALONG_TENSOR},
    {SL_ALONG_DATA, SL_ALONG_TENSOR, SL_ALONG_STAGES}, {SL_ALONG_TENSOR, SL_ALONG_DATA, SL_ALONG_STAGES},
    {SL_ALONG_STAGES, SL_ALONG_TENSOR, SL_ALONG_DATA}, {SL_ALONG_TENSOR, SL_ALONG_STAGES, SL_ALONG_DATA}};
enum { ORDERS = sizeof orders / sizeof *orders };

/* Who is where: a line a stage of each replica, where they are few. */
static void print_devices(const struct sl_rows *rows, const struct sl_job *job) {
    if (job->data * job->stages * job->tensor > 64) return;
    for (int d = 0; d < job->data; d++) {
        for (int p = 0; p < job->stages; p++) {
            const int first = (d * job->stages + p) * job->tensor, last = first + job->tensor - 1;
            sl_rows_note(rows, "data %d, stage %d: device%s %d", d, p, job->tensor > 1 ? "s" : "", first);
            if (job->tensor > 1) sl_rows_note(rows, " to %d", last);
            sl_rows_note(rows, ", node %d", first / job->node);
            if (last / job->node != first / job->node) sl_rows_note(rows, " to %d", last / job->node);
            sl_rows_note(rows, "\n");
        }
    }
    sl_rows_note(rows, "\n");
}

static const struct sl_field replica_field[] = {
    {"order", "order, slowest first", -24, SL_FIELD_TEXT}, {"replicas", "devices", 8, SL_FIELD_COUNT},
    {"slow", "between nodes", -24, SL_FIELD_TEXT},         {"data_s", "data s", 10, SL_FIELD_REAL},
    {"pipeline_s", "pipeline s", 10, SL_FIELD_REAL},       {"tensor_s", "tensor s", 10, SL_FIELD_REAL},
    {"communication_s", "all s", 10, SL_FIELD_REAL},       {0}};

int sl_plan_replicas(struct sl_rows *rows, const struct sl_job *job, struct sl_error *error) {
    const struct sl_layout layout = sl_layout_of(job);
    sl_rows_note(rows, "Replicas: %d data x %d pipeline x %d tensor = %d devices, %d a node\n\n", job->data,
                 job->stages, job->tensor, job->data * job->stages * job->tensor, job->node);
    print_devices(rows, job);
    sl_rows_begin(rows, "replicas",
                  "Time to send in one update, by how the groups lie on nodes: those that communicate most belong\n"
                  "together.",
                  replica_field);
    for (int i = 0; i < ORDERS; i++) {
        double second[SL_ALONGS], all = 0;
        char order[64], slow[64] = "none";
        int used = 0;
        snprintf(order, sizeof order, "%s, %s, %s", axis_name[orders[i][0]], axis_name[orders[i][1]],
                 axis_name[orders[i][2]]);
        for (enum sl_along axis = 0; axis < SL_ALONGS; axis++) {
            all += second[axis] = seconds_of(job, &layout, orders[i], axis);
            if (axis_size(&layout, axis) == 1 || !sl_crosses_nodes(job, &layout, orders[i], axis)) continue;
            used += snprintf(slow + used, sizeof slow - (size_t)used, "%s%s", used ? ", " : "", axis_name[axis]);
        }
        const union sl_value value[] = {{.text = order},
                                        {.number = (double)job->data * job->stages * job->tensor},
                                        {.text = slow},
                                        {.number = second[SL_ALONG_DATA]},
                                        {.number = second[SL_ALONG_STAGES]},
                                        {.number = second[SL_ALONG_TENSOR]},
                                        {.number = all}};
        SL_TRY(sl_rows_add(rows, value, error));
    }
    return SL_OK;
}
