/* image.h - what the fake CUDA's driver takes as an image: an ELF file for NVIDIA's GPUs, whose kernels an executor
 * runs (fake.h), or a shared library for this machine, whose kernels run on the stream's thread. */
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

/* Whether there is a function of that name; *CODE is NULL where it cannot run here. */
bool fake_image_function(const struct fake_image *image, const char *name, void **code);
/* The BYTES of the variable NAME; NULL if there is none. Zeros are not in an image: *VALUE is then NULL. */
bool fake_image_variable(const struct fake_image *image, const char *name, const void **value, size_t *bytes);

#endif
