/* run_seeds.c - runs a harness without a fuzzer: run_seeds DIRECTORY; prints TAP.
 *
 * It passes every file of DIRECTORY to the harness, and then MUTATIONS inputs made from them: cut short, with flipped
 * bits, with pieces of other seeds. They are the same in every run. A failure names the seed and the mutation, and
 * writes the input to the working directory's build folder. */
#include <dirent.h>
#include <signal.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"

enum { MUTATIONS = 2000, SEEDS = 256, LONGEST = 1 << 16, SECONDS = 10 };

struct seed {
    char name[256];
    uint8_t *data;
    size_t size;
};

static struct seed seed[SEEDS];
static int seeds;

/* The input under way. */
static uint8_t input[LONGEST];
static size_t input_size;
static int mutation;

static uint64_t draw(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static size_t below(size_t end) { return end ? (size_t)(draw() % end) : 0; }

static void keep_input(void) {
    static const char path[] = "build/fuzz_failure";
    const int descriptor = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    const bool kept = descriptor >= 0 && write(descriptor, input, input_size) == (ssize_t)input_size;
    dprintf(STDERR_FILENO, "# mutation %d (0: a seed itself), %zu bytes%s%s\n", mutation, input_size, kept ? ": " : "",
            kept ? path : "");
}

static void fail(int number) {
    dprintf(STDERR_FILENO, "# ended by %s\n", number == SIGALRM ? "a hang" : "abort()");
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

/* AddressSanitizer calls it, if it is there. */
void __asan_on_error(void);
void __asan_on_error(void) { keep_input(); }

static void run(void) {
    uint8_t *copy = malloc(input_size ? input_size : 1); /* exactly as large, so sanitizers see reads beyond it */
    FUZZ_PROMISE(copy, "memory");
    memcpy(copy, input, input_size);
    alarm(SECONDS);
    LLVMFuzzerTestOneInput(copy, input_size);
    alarm(0);
    free(copy);
}

static void copy_seed(const struct seed *from) {
    memcpy(input, from->data, from->size);
    input_size = from->size;
}

/* ---- mutations ---- */

static void turn_bit(void) {
    if (input_size) input[below(input_size)] ^= (uint8_t)(1u << below(8));
}

static void set_byte(void) {
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '\n', ' ', '-', '0', '9', ',', '"', '{', '[', '@', '='};
    if (input_size) input[below(input_size)] = telling[below(sizeof telling)];
}

static void cut_short(void) { input_size = below(input_size + 1); }

static void leave_out(void) {
    const size_t begin = below(input_size + 1), length = below(input_size - begin + 1);
    memmove(input + begin, input + begin + length, input_size - begin - length);
    input_size -= length;
}

/* Puts a piece of any seed, of this one too, somewhere. */
static void insert_piece(void) {
    const struct seed *from = &seed[below((size_t)seeds)];
    const size_t begin = below(from->size + 1), at = below(input_size + 1);
    size_t length = below(from->size - begin + 1);
    if (length > sizeof input - input_size) length = sizeof input - input_size;
    memmove(input + at + length, input + at, input_size - at);
    memcpy(input + at, from->data + begin, length);
    input_size += length;
}

static void mutate(void) {
    static void (*const way[])(void) = {turn_bit,  turn_bit,  set_byte,     set_byte,
                                        cut_short, leave_out, insert_piece, insert_piece};
    for (size_t n = 1 + below(4); n; n--) way[below(sizeof way / sizeof *way)]();
}

/* ---- seeds ---- */

static int by_name(const void *left, const void *right) {
    return strcmp(((const struct seed *)left)->name, ((const struct seed *)right)->name);
}

static bool read_seed(const char *directory, const char *name) {
    char path[4096];
    struct seed *to = &seed[seeds];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(to->name, sizeof to->name, "%s", name);
    FILE *file = fopen(path, "rb");
    to->data = malloc(LONGEST);
    if (!file || !to->data) return false;
    to->size = fread(to->data, 1, LONGEST, file);
    fclose(file);
    seeds++;
    return true;
}

static bool read_seeds(const char *directory) {
    DIR *open = opendir(directory);
    if (!open) return false;
    bool good = true;
    for (struct dirent *entry; good && seeds < SEEDS && (entry = readdir(open));)
        if (entry->d_name[0] != '.') good = read_seed(directory, entry->d_name);
    closedir(open);
    qsort(seed, (size_t)seeds, sizeof *seed, by_name); /* a folder's order is any */
    return good && seeds;
}

int main(int argc, char **argv) {
    if (argc != 2 || !read_seeds(argv[1])) {
        fprintf(stderr, "usage: %s DIRECTORY, which has seeds\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, fail);
    signal(SIGALRM, fail);
    for (int i = 0; i < seeds; i++) {
        copy_seed(&seed[i]);
        run();
        dprintf(STDOUT_FILENO, "ok %d - seed %s\n", i + 1, seed[i].name);
    }
    for (mutation = 1; mutation <= MUTATIONS; mutation++) {
        copy_seed(&seed[below((size_t)seeds)]);
        mutate();
        run();
    }
    dprintf(STDOUT_FILENO, "ok %d - %d mutations of them\n1..%d\n", seeds + 1, MUTATIONS, seeds + 1);
    for (int i = 0; i < seeds; i++) free(seed[i].data);
    return 0;
}
