/* resize.c - asks the watcher of a run for another mesh. */
#include <stdio.h>
#include <string.h>

#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/training/restart/control.h"

struct config {
    const char *mesh;
};

static const struct sl_option table[] = {
    {"mesh", SL_OPTION_TEXT, offsetof(struct config, mesh), .value = "AXIS=N,...",
     .help = "the new mesh, such as data=4,pipe=2"},
    {0},
};

static int run(const struct config *config, const struct sl_operands *operands, struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_output output = {0};
    char answer[SL_CONTROL_TEXT];
    if (operands->count != 1)
        return sl_error_set(error, SL_BAD_INPUT, "%d arguments: give one, the directory of a run's --save",
                            operands->count);
    if (!config->mesh) return sl_error_set(error, SL_BAD_INPUT, "no mesh: give --mesh AXIS=N,...");
    SL_TRY(sl_mesh_parse(&mesh, config->mesh, error));
    SL_TRY(sl_output_open(&output, NULL, error));
    int status = sl_control_ask(operands->word[0], config->mesh, answer, error);
    if (status == SL_OK && strncmp(answer, SL_CONTROL_DONE, strlen(SL_CONTROL_DONE)) != 0)
        status = sl_error_set(error, SL_BAD_INPUT, "%s", answer);
    if (status == SL_OK) fprintf(output.stream, "%s\n", answer);
    return sl_output_close(&output, status, error);
}

int main(int argc, char **argv) {
    struct config config = {0};
    struct sl_options options = {
        .program = "resize",
        .summary = "Changes the mesh of a run that trains: after the step under way the run ends, and it continues on "
                   "the new mesh from its state in memory. The run must have been started on this machine, with "
                   "--restart N and, if it runs as threads, --protect 1.",
        .section = SL_SECTIONS({"Mesh", table, &config}),
        .operands = {.name = "RUN", .help = "the directory of the run's --save", .path = SL_PATH_DATA},
    };
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered)
        status = sl_options_finish(&options, run(&config, &options.operands, &error), &error);
    sl_options_free(&options);
    return status;
}
