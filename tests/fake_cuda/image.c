/* image.c - ELF files as images. */
#include "image.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

enum { MACHINE_CUDA = 190 };

struct fake_image {
    void *library; /* for this machine; NULL: the image is for GPUs */
    int file;      /* from which the library was loaded */
    void *module;  /* the executor's; NULL: nothing runs */
    size_t bytes;
    char data[];
};

static const Elf64_Ehdr *header_of(const struct fake_image *image) { return (const void *)image->data; }

static const Elf64_Shdr *sections_of(const struct fake_image *image) {
    return (const void *)(image->data + header_of(image)->e_shoff);
}

/* Returns the image's size: up to the end of its last section, program headers or section headers. Images do not state
 * it. */
static size_t size_of(const char *data) {
    const Elf64_Ehdr *header = (const void *)data;
    const Elf64_Shdr *section = (const void *)(data + header->e_shoff);
    size_t end = header->e_shoff + (size_t)header->e_shnum * sizeof *section;
    const size_t programs = header->e_phoff + (size_t)header->e_phnum * sizeof(Elf64_Phdr);
    if (programs > end) end = programs;
    for (int i = 0; i < header->e_shnum; i++) {
        const size_t its = section[i].sh_offset + section[i].sh_size;
        if (section[i].sh_type != SHT_NOBITS && its > end) end = its;
    }
    return end;
}

/* Loads the library from a file, which stays open: dlopen takes a reused path for the earlier library. */
static bool open_library(struct fake_image *image) {
    char path[64];
    image->file = memfd_create("image", MFD_CLOEXEC);
    if (image->file < 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", image->file);
    if (write(image->file, image->data, image->bytes) == (ssize_t)image->bytes) image->library = dlopen(path, RTLD_NOW);
    if (image->library) return true;
    fprintf(stderr, "# the fake CUDA's image: %s\n", dlerror());
    close(image->file);
    return false;
}

struct fake_image *fake_image_open(const void *data) {
    const Elf64_Ehdr *header = data;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64) return NULL;
    if (header->e_machine != MACHINE_CUDA && header->e_machine != EM_X86_64) return NULL;
    const size_t bytes = size_of(data);
    struct fake_image *image = malloc(sizeof *image + bytes);
    if (!image) return NULL;
    *image = (struct fake_image){.bytes = bytes};
    memcpy(image->data, data, bytes);
    if (header->e_machine == MACHINE_CUDA && fake_executor) image->module = fake_executor->open(data, bytes);
    if (header->e_machine == MACHINE_CUDA || open_library(image)) return image;
    free(image);
    return NULL;
}

void fake_image_close(struct fake_image *image) {
    if (image->library) dlclose(image->library);
    if (image->library) close(image->file);
    if (image->module) fake_executor->close(image->module);
    free(image);
}

void *fake_image_module(const struct fake_image *image) { return image->module; }

static const Elf64_Sym *find(const struct fake_image *image, const char *name) {
    const Elf64_Shdr *section = sections_of(image);
    for (int i = 0; i < header_of(image)->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB && section[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbol = (const void *)(image->data + section[i].sh_offset);
        const char *names = image->data + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++) {
            if (symbol[k].st_shndx != SHN_UNDEF && !strcmp(names + symbol[k].st_name, name)) return &symbol[k];
        }
    }
    return NULL;
}

bool fake_image_function(const struct fake_image *image, const char *name, void **code) {
    const Elf64_Sym *symbol = find(image, name);
    *code = symbol && image->library ? dlsym(image->library, name) : NULL;
    return symbol && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

/* In a file for GPUs a symbol's value counts from its section. */
bool fake_image_variable(const struct fake_image *image, const char *name, const void **value, size_t *bytes) {
    const Elf64_Sym *symbol = find(image, name);
    if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) return false;
    const Elf64_Shdr *section = &sections_of(image)[symbol->st_shndx];
    *bytes = symbol->st_size;
    *value = image->library                   ? dlsym(image->library, name)
             : section->sh_type == SHT_NOBITS ? NULL
                                              : image->data + section->sh_offset + symbol->st_value;
    return true;
}
