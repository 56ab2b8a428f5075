/* collectives_mpi.c - times of Open MPI for the operations of bench_collectives.c, among processes of one machine.
 *
 *     mpirun -n N collectives_mpi SECONDS BYTES...
 *
 * The group is all N processes, one thread each. Calls, bytes and measurements are as in that program: a time is a
 * call's share of a series of calls, until the slowest process has finished; the median of a few batches, with their
 * least and most. The first process prints a JSON line for each operation and size. SECONDS is about the time of a
 * measurement. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, MAX_COUNT = 1 << 20, SLOT = 16384, GRADIENTS = 4618762 };

struct worker {
    int rank, size;
    double seconds; /* of a measurement */
    char version[32];
    float *in, *out;
    int elements; /* of a call: the whole input of psum and ppermute, otherwise a member's part */
    int messages; /* of hand_over's ring */
};

/* ---- operations: each does something COUNT times, all processes together ---- */

typedef void operation(struct worker *worker, int count);

static void psum(struct worker *w, int count) {
    for (int i = 0; i < count; i++) MPI_Allreduce(w->in, w->out, w->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void psum_gradients(struct worker *w, int count) {
    for (int i = 0; i < count; i++) MPI_Allreduce(MPI_IN_PLACE, w->in, GRADIENTS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void psum_scatter(struct worker *w, int count) {
    for (int i = 0; i < count; i++)
        MPI_Reduce_scatter_block(w->in, w->out, w->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(struct worker *w, int count) {
    for (int i = 0; i < count; i++)
        MPI_Allgather(w->in, w->elements, MPI_FLOAT, w->out, w->elements, MPI_FLOAT, MPI_COMM_WORLD);
}

static void all_to_all(struct worker *w, int count) {
    for (int i = 0; i < count; i++)
        MPI_Alltoall(w->in, w->elements, MPI_FLOAT, w->out, w->elements, MPI_FLOAT, MPI_COMM_WORLD);
}

static int next(const struct worker *w) { return (w->rank + 1) % w->size; }
static int previous(const struct worker *w) { return (w->rank + w->size - 1) % w->size; }

static void ppermute(struct worker *w, int count) {
    for (int i = 0; i < count; i++)
        MPI_Sendrecv(w->in, w->elements, MPI_FLOAT, next(w), 0, w->out, w->elements, MPI_FLOAT, previous(w), 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(struct worker *w, int count) {
    (void)w;
    for (int i = 0; i < count; i++) MPI_Barrier(MPI_COMM_WORLD);
}

/* Sends messages round the ring COUNT times. The first processes put one each into it; in the end their receivers take
 * it out. A slot receives a message only after the message sent from it two hand-overs before has left it. */
static void hand_over(struct worker *w, int count) {
    char *slot[2] = {(char *)w->in, (char *)w->out};
    MPI_Request sent = MPI_REQUEST_NULL;
    if (w->rank < w->messages) MPI_Isend(slot[1], SLOT, MPI_BYTE, next(w), 0, MPI_COMM_WORLD, &sent);
    for (int i = 0; i < count; i++) {
        MPI_Recv(slot[i % 2], SLOT, MPI_BYTE, previous(w), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
        MPI_Isend(slot[i % 2], SLOT, MPI_BYTE, next(w), 0, MPI_COMM_WORLD, &sent);
    }
    if (previous(w) < w->messages)
        MPI_Recv(slot[count % 2], SLOT, MPI_BYTE, previous(w), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

static const struct {
    const char *name;
    operation *operation;
    bool blocks; /* the input or the output has a block for each member, at least one element */
} sized[] = {
    {"psum", psum, false},         {"all_gather", all_gather, true}, {"psum_scatter", psum_scatter, true},
    {"ppermute", ppermute, false}, {"all_to_all", all_to_all, true},
};
enum { SIZED = sizeof sized / sizeof *sized };

/* ---- measuring ---- */

static double seconds_of(struct worker *w, operation *operation, int count) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    operation(w, count);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - began;
}

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Measures OPERATION, which does PER_COUNT timed operations for each of its count. */
static void measure(struct worker *w, const char *name, operation *operation, int bytes, int per_count) {
    double us[BATCHES];
    int count = 1, more = 1;
    seconds_of(w, operation, 2); /* the first calls take longer */
    while (more) {
        more = seconds_of(w, operation, count) < w->seconds / BATCHES && count < MAX_COUNT;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (more) count *= 2;
    }
    for (int i = 0; i < BATCHES; i++) us[i] = 1e6 * seconds_of(w, operation, count) / count / per_count;
    if (w->rank != 0) return;
    qsort(us, BATCHES, sizeof *us, by_value);
    printf("{\"peer\":\"openmpi\",\"version\":\"%s\",\"operation\":\"%s\",\"group\":%d,\"threads\":%d,\"bytes\":%d,",
           w->version, name, w->size, w->size, bytes);
    if (operation == hand_over) printf("\"messages\":%d,", w->messages);
    printf("\"us\":%.9g,\"us_min\":%.9g,\"us_max\":%.9g}\n", us[BATCHES / 2], us[0], us[BATCHES - 1]);
    fflush(stdout);
}

static void measure_all(struct worker *w, int sizes, const int *bytes) {
    for (int o = 0; o < SIZED; o++) {
        for (int s = 0; s < sizes; s++) {
            const int members = sized[o].blocks ? w->size : 1, elements = bytes[s] / (int)sizeof(float) / members;
            w->elements = elements > 0 ? elements : 1;
            measure(w, sized[o].name, sized[o].operation, w->elements * members * (int)sizeof(float), 1);
        }
    }
    measure(w, "barrier", barrier, 0, 1);
    for (int m = 0; m < 2; m++) {
        w->messages = m ? w->size : 1;
        measure(w, "hand_over", hand_over, SLOT, w->size);
    }
    if (w->size == 2) measure(w, "psum_gradients", psum_gradients, GRADIENTS * (int)sizeof(float), 1);
}

/* ---- main ---- */

static int usage(void) {
    fputs("usage: mpirun -n N collectives_mpi SECONDS BYTES..., each from 4 to 2^30 bytes, at most 16 sizes\n", stderr);
    return 2;
}

/* Returns zeros in pages that exist. They are negative zeros: a compiler turns positive ones into calloc, which leaves
 * pages unmapped. */
static float *zeros(size_t count) {
    float *array = malloc(count * sizeof *array);
    for (size_t i = 0; array && i < count; i++) array[i] = -0.0f;
    return array;
}

int main(int argc, char **argv) {
    struct worker worker = {0};
    int bytes[16], largest = GRADIENTS * (int)sizeof(float);
    if (argc < 3 || argc > 2 + (int)(sizeof bytes / sizeof *bytes)) return usage();
    worker.seconds = atof(argv[1]);
    for (int i = 2; i < argc; i++) {
        const long size = atol(argv[i]);
        if (size < 4 || size > 1 << 30) return usage();
        bytes[i - 2] = (int)size;
        if (size > largest) largest = (int)size;
    }
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &worker.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &worker.size);
    MPI_Get_library_version(library, &length);
    sscanf(library, "%*[^0-9]%31[0-9.]", worker.version);
    worker.in = zeros((size_t)largest / sizeof(float));
    worker.out = zeros((size_t)largest / sizeof(float));
    if (!worker.in || !worker.out) {
        fprintf(stderr, "no memory for 2 x %d bytes\n", largest);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    measure_all(&worker, argc - 2, bytes);
    free(worker.in);
    free(worker.out);
    return MPI_Finalize();
}
