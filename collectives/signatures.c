/* signatures.c - finds the keys on which signatures differ, and lists each text with its processes. */
#include "collectives/signatures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/signature.h"

enum {
    MOST_TEXTS = 3,  /* shown per key */
    TEXT_SHOWN = 96, /* characters shown of a text */
    BEFORE = 16,     /* characters shown before the first difference */
    PLACES = 120,    /* bytes for the names of the processes with a text */
    CLAUSE = 540,    /* bytes per key */
};

/* One process's text of a key. */
struct entry {
    const char *key, *text;
    int process, number; /* position in its signature */
};

struct comparison {
    const struct sl_mesh *mesh;
    int processes;
    int *like;         /* [processes]: the first process with an equal signature */
    const char **text; /* [processes]: texts of the current key; NULL: the process does not have it */
    int entries;
    struct entry *entry; /* entries of all processes, except those with a signature equal to an earlier process's */
};

static int compare_entries(const void *one, const void *other) {
    const struct entry *a = one, *b = other;
    const int keys = strcmp(a->key, b->key);
    if (keys) return keys;
    return a->process != b->process ? a->process - b->process : a->number - b->number;
}

/* ---- collecting ---- */

static void find_likes(struct comparison *c, const struct sl_signed *signature) {
    for (int process = 0; process < c->processes; process++) {
        int first = 0;
        while (signature[first].bytes != signature[process].bytes) first++;
        c->like[process] = first;
    }
}

/* Fills in c->entry; if it is NULL, only counts. */
static void collect(struct comparison *c, const struct sl_signed *signature) {
    c->entries = 0;
    for (int process = 0; process < c->processes; process++) {
        struct sl_signature_entry found;
        size_t at = 0;
        if (c->like[process] != process) continue;
        for (int number = 0; sl_signature_next(signature[process].bytes, signature[process].size, &at, &found);
             number++) {
            if (c->entry) c->entry[c->entries] = (struct entry){found.key, found.text, process, number};
            c->entries++;
        }
    }
}

static bool open_comparison(struct comparison *c, const struct sl_signed *signature) {
    c->like = malloc((size_t)c->processes * sizeof *c->like);
    c->text = malloc((size_t)c->processes * sizeof *c->text);
    if (!c->like || !c->text) return false;
    find_likes(c, signature);
    collect(c, signature);
    c->entry = malloc(((size_t)c->entries + 1) * sizeof *c->entry);
    if (!c->entry) return false;
    collect(c, signature);
    qsort(c->entry, (size_t)c->entries, sizeof *c->entry, compare_entries);
    return true;
}

static void close_comparison(struct comparison *c) {
    free(c->like);
    free(c->text);
    free(c->entry);
}

/* ---- a key ---- */

static bool same(const char *one, const char *other) { return one == other || (one && other && !strcmp(one, other)); }

/* Fills in c->text from COUNT entries of one key. Returns whether they differ. If a process has a key twice, the first
 * counts. */
static bool differ(struct comparison *c, const struct entry *entry, int count) {
    bool found = false;
    for (int process = 0; process < c->processes; process++) c->text[process] = NULL;
    for (int i = count - 1; i >= 0; i--) c->text[entry[i].process] = entry[i].text;
    for (int process = 0; process < c->processes; process++) {
        c->text[process] = c->text[c->like[process]];
        found |= !same(c->text[process], c->text[0]);
    }
    return found;
}

/* Writes TEXT, or its part around the first difference from OTHER. */
static void print_text(const char *text, const char *other, char out[TEXT_SHOWN + 8]) {
    if (!text) {
        strcpy(out, "absent");
        return;
    }
    size_t first = 0;
    const size_t length = strlen(text);
    while (other && text[first] && text[first] == other[first]) first++;
    first = length <= TEXT_SHOWN || first <= BEFORE ? 0 : first - BEFORE;
    snprintf(out, TEXT_SHOWN + 8, "%s%.*s%s", first ? "..." : "", TEXT_SHOWN, text + first,
             length - first > TEXT_SHOWN ? "..." : "");
    if (!*out) strcpy(out, "empty");
}

/* Whether no earlier process has the same text. */
static bool is_first(const struct comparison *c, int process) {
    for (int earlier = 0; earlier < process; earlier++)
        if (same(c->text[earlier], c->text[process])) return false;
    return true;
}

/* Writes "coordinate 0 (data=0)", or "coordinates 1, 3-5", for the processes with the text TEXT. */
static void print_places(const struct comparison *c, const char *text, char out[SL_VERDICT_NAME + PLACES]) {
    int count = 0, first = 0, last = 0;
    for (int process = 0; process < c->processes; process++) {
        if (!same(c->text[process], text)) continue;
        if (!count++) first = process;
        last = process;
    }
    const char *name = last < c->mesh->size ? "coordinate" : "process";
    if (count == 1 && last < c->mesh->size) {
        sl_verdict_name(c->mesh, last, out);
        return;
    }
    int used = sprintf(out, "%s%s", name, count == 1 ? "" : last < c->mesh->size ? "s" : "es");
    for (int process = first; process <= last && used < PLACES - 30; process++) {
        if (!same(c->text[process], text)) continue;
        int end = process;
        while (end < last && same(c->text[end + 1], text)) end++;
        used += sprintf(out + used, "%s %d", process == first ? "" : ",", process);
        if (end > process) used += sprintf(out + used, "%s%d", end == process + 1 ? ", " : "-", end);
        process = end;
        if (process < last && used >= PLACES - 30) strcpy(out + used, ", ...");
    }
}

/* Counts the distinct texts of the key; sets *SECOND to the first one different from process 0's. */
static int count_texts(const struct comparison *c, const char **second) {
    int count = 0;
    for (int process = 0; process < c->processes; process++) {
        if (!is_first(c, process)) continue;
        if (++count == 2) *second = c->text[process];
    }
    return count;
}

/* Adds the clause about KEY, after JOINT. False if it does not fit. */
static bool tell(const struct comparison *c, const char *key, const char *joint, struct sl_error *verdict) {
    char clause[CLAUSE], text[TEXT_SHOWN + 8], places[SL_VERDICT_NAME + PLACES];
    const char *second = NULL;
    const int count = count_texts(c, &second), most = count < MOST_TEXTS ? count : MOST_TEXTS;
    int used = snprintf(clause, sizeof clause, "%s%.60s is", joint, key), told = 0;
    for (int process = 0; told < most && used < CLAUSE; process++) {
        if (!is_first(c, process)) continue;
        print_text(c->text[process], process ? c->text[0] : second, text);
        print_places(c, c->text[process], places);
        const char *between = !told ? " " : told + 1 == count ? " and " : ", ";
        used += snprintf(clause + used, sizeof clause - (size_t)used, "%s%s at %s", between, text, places);
        told++;
    }
    if (count > most && used < CLAUSE)
        snprintf(clause + used, sizeof clause - (size_t)used, " and %d more", count - most);
    return sl_verdict_add(verdict, "%s", clause);
}

/* Keys and texts may have several lines; a verdict has one. */
static void make_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127) *text = ' ';
}

void sl_verdict_signatures(struct sl_error *verdict, const struct sl_mesh *mesh, int processes,
                           const struct sl_signed *signature) {
    struct comparison c = {.mesh = mesh, .processes = processes};
    int told = 0, untold = 0;
    if (open_comparison(&c, signature)) {
        for (int i = 0, end; i < c.entries; i = end) {
            for (end = i + 1; end < c.entries && !strcmp(c.entry[end].key, c.entry[i].key);) end++;
            if (!differ(&c, &c.entry[i], end - i)) continue;
            if (!untold && tell(&c, c.entry[i].key, told ? "; " : "", verdict)) {
                told++;
            } else {
                untold++;
            }
        }
    }
    close_comparison(&c);
    const size_t used = strlen(verdict->message); /* there is always room, as in sl_verdict_add_more */
    if (untold) snprintf(verdict->message + used, sizeof verdict->message - used, "; and %d more", untold);
    if (!told && !untold) sl_verdict_add(verdict, "the processes' signatures differ");
    make_one_line(verdict->message);
}
