/* image.h - images for the fake CUDA's driver: an ELF file for NVIDIA's GPUs, with kernels for an executor (fake.h), or
 * a shared library for this machine, with kernels that run on the stream's thread. */
#ifndef FAKE_IMAGE_H
#define FAKE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

struct fake_image;

/* NULL if DATA is neither. It is copied. */
struct fake_image *fake_image_open(const void *data);
void fake_image_close(struct fake_image *image);

/* The executor's module for it; NULL: there is none. */
void *fake_image_module(const struct fake_image *image);

/* Returns whether the image has a function NAME. *CODE is NULL if it cannot run here. */
bool fake_image_function(const struct fake_image *image, const char *name, void **code);
/* Returns whether the image has a variable NAME; sets its BYTES. Images do not store zeros: *VALUE is NULL for them. */
bool fake_image_variable(const struct fake_image *image, const char *name, const void **value, size_t *bytes);

#endif
