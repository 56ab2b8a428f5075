/* paper.c - calls without peers, which end at once. */
#include "collectives/paper.h"

#include "collectives/collectives.h"
#include "collectives/operations.h"
#include "spmd/device/device.h"

static int start(struct sl_spmd *self, struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    const size_t bytes = sl_block_bytes(call);
    const size_t own = (size_t)call->group->rank * sl_dtype_size(call->dtype);
    if (self->error.status || !call->input || !call->output || !bytes) return self->error.status;
    const char *from = (const char *)call->input + (sl_operation_of(call)->cuts ? own * call->input_view.peer : 0);
    char *to = (char *)call->output + (sl_operation_of(call)->joins ? own * call->output_view.peer : 0);
    if (to != from) sl_device.copy(to, from, bytes);
    return sl_device.settle(&self->error);
}

static int finish(struct sl_spmd *self, struct sl_request *request) { return (void)request, self->error.status; }

static int test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    *done = true;
    return finish(self, request);
}

static int group_open(struct sl_spmd *self, struct sl_group *group) {
    group->communicator = self;
    return self->error.status;
}

static int group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    (void)group, (void)site;
    return self->error.status;
}

/* Refuses calls that only a training step makes. */
static int refuse(struct sl_spmd *self) { return sl_fail(self, SL_BAD_INPUT, "there are no peers on paper"); }

static int gather_from(struct sl_spmd *self, const struct sl_collective *call, const void *const *input) {
    (void)call, (void)input;
    return refuse(self);
}

static int group_memory(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory) {
    (void)group, (void)bytes, (void)memory;
    return refuse(self);
}

static int channel_open(struct sl_spmd *self, struct sl_channel *channel) { return (void)channel, refuse(self); }

static int progress(struct sl_spmd *self) { return self->error.status; }

int sl_paper_run(const struct sl_mesh *mesh, const struct sl_engine *like, int coordinate, sl_program *program,
                 void *arg, struct sl_error *error) {
    const bool reads = like->table->gather_from != NULL;
    const struct sl_engine_table table = {.name = like->table->name,
                                          .apart = like->table->apart,
                                          .both_ends = like->table->both_ends,
                                          .group_open = group_open,
                                          .group_close = group_close,
                                          .start = start,
                                          .test = test,
                                          .wait = finish,
                                          .gather_from = reads ? gather_from : NULL,
                                          .group_memory = reads ? group_memory : NULL,
                                          .channel_open = channel_open,
                                          .progress = progress};
    const struct sl_engine engine = {
        .table = &table, .timeout = like->timeout, .delay = like->delay, .recorded = like->recorded};
    struct sl_spmd self = {
        .mesh = mesh, .engine = &engine, .coordinate = coordinate, .device = sl_device.count() ? 0 : -1};
    const int status = program(&self, arg);
    if (status == SL_OK) return SL_OK;
    sl_fail(&self, status, "the program returned status %d", status); /* an earlier message stays */
    *error = self.error;
    return status;
}
