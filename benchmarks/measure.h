/* measure.h - helpers of the benchmarks: medians, all cores at once, the memory's bandwidth, numbers from options. */
#ifndef SL_BENCHMARKS_MEASURE_H
#define SL_BENCHMARKS_MEASURE_H

#include "benchmarks/rates/stream_pass.h"
#include "spmd/spmd.h"

/* Sorts VALUES. */
double sl_median(int count, double *values);

/* Returns the most memory that this process has held. */
double sl_peak_bytes(void);

/* Reads TEXT, the value of --OPTION. Returns SL_BAD_INPUT, after one line on stderr, if it is no number from MIN to
 * MAX. */
int sl_read_integer(const char *option, const char *text, int min, int max, int *value);
int sl_read_real(const char *option, const char *text, double min, double max, double *value);

/* Numbers, as in "2,4,8". */
enum { SL_MAX_LIST = 16 };
struct sl_list {
    int count;
    int value[SL_MAX_LIST];
};
int sl_read_list(const char *option, char *text, int min, int max, struct sl_list *list);

/* The cores that this process may use. Find them before coordinates are started, which may be tied to one core. */
enum { SL_MAX_CORES = 256 };
struct sl_cores {
    int count;
    int number[SL_MAX_CORES];
};
void sl_cores_find(struct sl_cores *cores);

/* Ties the calling thread to its core, if allowed: a thread that moves to another core finds its cache empty. */
void sl_stay_on_this_core(void);

/* Runs WORK(arg, i) for i below the number of cores, all at once, each in a thread tied to a core of its own. Returns
 * the sum of their results; negative if the threads cannot be started. */
typedef double sl_core_work(void *arg, int i);
double sl_on_all_cores(const struct sl_cores *cores, sl_core_work *work, void *arg);

/* Four arrays for passes like an optimizer's: four floats read and three written per element. */
struct sl_stream {
    const struct sl_cores *cores;
    size_t elements;
    double seconds; /* of a measurement; it lasts at least one pass */
    float *memory;  /* [cores][4][elements / cores] */
    sl_stream_pass *pass;
};
enum { SL_STREAM_BYTES = 28 }; /* an element */
int sl_stream_open(struct sl_stream *stream, const struct sl_cores *cores, size_t elements, double seconds);
/* From now on by the CPU's widest vectors. The floors of steps stay with the narrowest: ratios of older builds compare.
 */
void sl_stream_widen(struct sl_stream *stream);
/* Bytes read and written a second, all cores together. */
double sl_stream_measure(struct sl_stream *stream);
/* Returns the bytes that all cores together read in a second by the CPU's widest vectors. They read ELEMENTS elements
 * of one array again and again, from the nearest cache that has room for them. 0 elements: the whole array. */
double sl_stream_read(const struct sl_stream *stream, size_t elements);
void sl_stream_close(struct sl_stream *stream);

#endif
