/* libomptarget.h - data passed by clang 19's code to the runtime of target regions, as laid out in LLVM 19's
 * offload/include. clang's tools put descriptions of a program's images into the program, and replace every region by a
 * call of __tgt_target_kernel. */
#ifndef SL_SPMD_DEVICE_CUDA_LIBOMPTARGET_H
#define SL_SPMD_DEVICE_CUDA_LIBOMPTARGET_H

#include <stddef.h>
#include <stdint.h>

/* A target region, or, with a size, a variable of `declare target`. */
struct sl_omp_entry {
    void *address; /* region: its identifier in calls of __tgt_target_kernel; unique in the process */
    char *name;    /* name of the kernel in the images; not unique across programs and libraries */
    size_t size;
    int32_t flags, data;
};

struct sl_omp_image {
    const char *begin, *end; /* an ELF file for one kind of GPU */
    struct sl_omp_entry *first, *last;
};

/* A program or a shared library. */
struct sl_omp_binary {
    int32_t count;
    struct sl_omp_image *images;
    struct sl_omp_entry *first, *last;
};

enum { SL_OMP_ARGUMENTS_VERSION = 3 };

struct sl_omp_arguments {
    uint32_t version, count;
    void **bases, **pointers; /* [count]: a mapped object's address, and the address at which its mapped part
                                 begins */
    int64_t *sizes, *types;   /* [count]: bytes, and bits SL_OMP_TO and so on */
    void **names, **mappers;
    uint64_t trips, flags;                 /* trips of the region's loop; 0: unknown */
    uint32_t teams[3], threads[3], shared; /* 0: the launcher's choice */
};
#define SL_OMP_NO_TEAMS UINT32_MAX /* in teams: the region has no teams construct */

enum {
    SL_OMP_TO = 0x1,
    SL_OMP_FROM = 0x2,
    SL_OMP_POINTEE = 0x10,   /* target of a pointer inside an object */
    SL_OMP_PARAMETER = 0x20, /* a parameter of the kernel */
    SL_OMP_PRIVATE = 0x80,
    SL_OMP_LITERAL = 0x100, /* the base is the value itself */
};

enum { SL_OMP_GENERIC = 1, SL_OMP_SPMD = 2 };

/* An image's variable NAME_kernel_environment: the fields for a launch. */
struct sl_omp_kernel_environment {
    uint8_t state_machine, nests;
    int8_t mode; /* bits SL_OMP_GENERIC and SL_OMP_SPMD; both: generic, but runs as SPMD */
    int32_t least_threads, most_threads, least_teams, most_teams;
    uint32_t reduction_bytes, reduction_length; /* the product: bytes for sums across teams */
};

/* Every kernel's first argument; NO_ENVIRONMENT if it has no sums across teams. */
struct sl_omp_launch_environment {
    uint32_t arrived, round; /* zero before a launch */
    void *reduction;
};
#define SL_OMP_NO_ENVIRONMENT ((void *)~(uintptr_t)0)

_Static_assert(sizeof(struct sl_omp_entry) == 32 && sizeof(struct sl_omp_image) == 32, "as LLVM 19's");
_Static_assert(offsetof(struct sl_omp_arguments, trips) == 56, "as LLVM 19's");
_Static_assert(offsetof(struct sl_omp_arguments, teams) == 72 && sizeof(struct sl_omp_arguments) == 104,
               "as LLVM 19's");
_Static_assert(offsetof(struct sl_omp_kernel_environment, reduction_bytes) == 20, "as LLVM 19's");
_Static_assert(sizeof(struct sl_omp_launch_environment) == 16, "as LLVM 19's");

#endif
