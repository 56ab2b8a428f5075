/* fuzz_signature.c - signatures of other processes: read, compared, and their differences reported.
 *
 * The first byte is the number of processes, up to eight, and the second the number of them that share a signature with
 * another. The signatures are the rest, in equal parts. */
#include "collectives/signatures.h"
#include "spmd/base/hash.h"
#include "spmd/signature.h"
#include "tests/fuzz/fuzz.h"

/* Checks that parsed entries, written again, are the same. */
static void read_and_write(const struct sl_signed *from) {
    struct sl_signature again = {0};
    struct sl_signature_entry entry;
    size_t at = 0;
    while (sl_signature_next(from->bytes, from->size, &at, &entry))
        FUZZ_PROMISE(sl_signature_add(&again, entry.key, entry.text), "memory");
    FUZZ_PROMISE(at <= from->size && again.size == at && (!at || !memcmp(again.bytes, from->bytes, at)),
                 "the same bytes");
    FUZZ_PROMISE(sl_signature_hash(&again) == sl_hash(from->bytes, at), "the same hash");
    sl_signature_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_mesh mesh;
    struct sl_signed theirs[8];
    struct sl_error verdict = {0};
    if (size < 2) return 0;
    const int processes = 1 + data[0] % 8, shared = data[1] % 8;
    const size_t part = (size - 2) / (size_t)processes;
    char *bytes = malloc((size_t)processes * part + 1); /* of exactly this size, so sanitizers see reads beyond
                                                         * it */
    FUZZ_PROMISE(bytes && !sl_mesh_parse(&mesh, "data=2,model=2", NULL), "memory");
    memcpy(bytes, data + 2, (size_t)processes * part);
    for (int i = 0; i < processes; i++) {
        const int of = i < shared ? 0 : i;
        theirs[i] = (struct sl_signed){bytes + part * (size_t)of, part};
        read_and_write(&theirs[i]);
    }
    sl_verdict_signatures(&verdict, &mesh, processes, theirs);
    FUZZ_PROMISE(memchr(verdict.message, 0, sizeof verdict.message), "the verdict ends");
    FUZZ_PROMISE(*verdict.message, "a verdict");
    for (const char *at = verdict.message; *at; at++) FUZZ_PROMISE((unsigned char)*at >= ' ' && *at != 127, "one line");
    free(bytes);
    return 0;
}
