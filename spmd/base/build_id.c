/* build_id.c - reads the executable's note in memory. */
#include "spmd/base/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static const char owner[] = "GNU";

static size_t padded(size_t size) { return (size + 3) / 4 * 4; }

/* Writes the build id among the notes in the SIZE bytes at NOTES. Returns whether there is one. */
static bool print_note(const char *notes, size_t size, char *text) {
    for (size_t at = 0; size - at >= sizeof(ElfW(Nhdr));) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        const size_t name = at + sizeof note, value = name + padded(note.n_namesz);
        const size_t end = value + padded(note.n_descsz);
        if (end > size || end <= at) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof owner &&
            !memcmp(notes + name, owner, sizeof owner)) {
            for (size_t i = 0; i < note.n_descsz && 2 * i + 2 < SL_BUILD_ID_SIZE; i++)
                snprintf(text + 2 * i, 3, "%02x", (unsigned char)notes[value + i]);
            return note.n_descsz > 0;
        }
        at = end;
    }
    return false;
}

/* The first object is the executable. */
static int look_at_first(struct dl_phdr_info *object, size_t size, void *text) {
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const char *notes = (const char *)(object->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_NOTE && print_note(notes, part->p_memsz, text)) break;
    }
    return 1;
}

char *sl_build_id(char text[SL_BUILD_ID_SIZE]) {
    snprintf(text, SL_BUILD_ID_SIZE, "unknown");
    dl_iterate_phdr(look_at_first, text);
    return text;
}
