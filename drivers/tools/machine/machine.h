/* machine.h - a machine model for predictions: times of each kind of work. It is measured
 * (drivers/tools/machine/measure.h), or read from a file (drivers/tools/machine/machine_file.h).
 *
 * A machine is a row of nodes. The coordinates of a mesh fill the places of one node, then of the next; a place is a
 * core or a device. If a node has more coordinates than places, they share its cores. */
#ifndef SL_DRIVERS_TOOLS_MACHINE_MACHINE_H
#define SL_DRIVERS_TOOLS_MACHINE_MACHINE_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/base/error.h"
#include "spmd/engine.h"
#include "spmd/mesh.h"

/* Classes of kernels, each with a cost per element. */
enum sl_machine_kernel {
    SL_MACHINE_MOVES,     /* floats read or written */
    SL_MACHINE_NORMS,     /* normalized elements */
    SL_MACHINE_GELU,      /* elements of an activation */
    SL_MACHINE_SOFTMAX,   /* logits */
    SL_MACHINE_DROPOUT,   /* random words drawn */
    SL_MACHINE_OPTIMIZER, /* parameters updated by AdamW */
    SL_MACHINE_KERNELS
};

/* Distance of two places, the nearest first: on one core, as hyperthreads or as coordinates sharing a place;
 * connected GPUs; in one package; in one node; anywhere. */
enum sl_link { SL_LINK_CORE, SL_LINK_GPU, SL_LINK_PACKAGE, SL_LINK_NODE, SL_LINK_NETWORK, SL_LINKS };

/* Names of links and kernels, as keys of the file. */
extern const char *const sl_link_name[SL_LINKS], *const sl_machine_kernel_name[SL_MACHINE_KERNELS];

/* The rate of C [m, n] = A [m, k] B [k, n] on one place. */
struct sl_machine_product {
    enum sl_dtype type;
    int m, n, k;
    bool a_transposed, b_transposed;
    double gflops; /* 1e9 multiplications and additions a second */
};

/* Limits. */
enum {
    SL_MACHINE_PRODUCTS = 1024,
    SL_MACHINE_NODES = 64,
    SL_MACHINE_SIZES = 16,
    SL_MACHINE_GROUPS = 16,
    SL_MACHINE_SPEEDS = 64 /* places with speeds of their own, measured together */
};

struct sl_machine_nodes {
    int count;                        /* number of equal nodes in a row */
    int places;                       /* cores or devices per node */
    bool shares;                      /* coordinates may share places; otherwise at most one coordinate per place */
    int core;                         /* neighbouring places on one core; 0 or 1: each place is a core or a device */
    int gpus;                         /* neighbouring places that are connected GPUs; 0: none */
    int package;                      /* neighbouring places in one package, or on one switch */
    double memory;                    /* bytes per place; 0: unknown */
    double speed;                     /* of its places, relative to the machine's rates */
    double speeds[SL_MACHINE_SPEEDS]; /* of its first places, relative to `speed`; 0: 1 */
};

/* Default bandwidth of offloading, as of a disk: bytes a second. */
#define SL_MACHINE_FAR 1e9

/* Bandwidth of a place's memory when it cycles through so many bytes, while all other places do the same. */
struct sl_machine_memory {
    double bytes, bandwidth; /* per place; bytes a second */
};

/* Costs of sleeping. 0: none, or unknown. */
struct sl_machine_waits {
    double wake;   /* seconds from a message until a sleeping receiver goes on; */
    double nap;    /* the same if the receiver has just fallen asleep: less, since its core's caches are still warm; */
    double notify; /* the sender's own time for waking it; */
    double awake;  /* time a coordinate waits before it sleeps; */
    double spread; /* standard deviation of a short wait, relative to it */
};

/* A group of coordinates sharing cores. */
struct sl_machine_group {
    int members;
    double call;      /* seconds of a core per member and call; */
    double bandwidth; /* bytes a second of data received from other members in a call; 0: the link's */
};

/* Costs of sharing cores, in seconds. 0: none, or unknown. */
struct sl_machine_turns {
    double message; /* of a message until its receiver has a core; */
    double call;    /* of a core, per member and call, if the costs of groups are unknown; */
    double idle;    /* share of the time in which a core is idle while coordinates wait for another core; */
    int groups;     /* measured sizes, the smallest first: members of larger groups are woken more often */
    struct sl_machine_group group[SL_MACHINE_GROUPS];
};

struct sl_machine {
    char name[96];
    int products, kinds; /* kinds: number of entries in nodes */
    struct sl_machine_product product[SL_MACHINE_PRODUCTS];
    struct sl_machine_nodes nodes[SL_MACHINE_NODES];
    double kernel[SL_MACHINE_KERNELS]; /* seconds per element */
    double attention;                  /* multiply-adds a second in attention's products, exponentials included */
    double far;                        /* bytes a second to and from the place of --offload */
    double action;                     /* seconds of an action of a schedule besides its work */
    double latency[SL_LINKS];          /* seconds per message, and per step of a collective */
    double bandwidth[SL_LINKS];        /* bytes a second */
    int sizes;                         /* of memory, ascending; 0: memory is never a limit */
    struct sl_machine_memory memory[SL_MACHINE_SIZES];
    struct sl_machine_waits waits;
    struct sl_machine_turns tied;    /* if equal numbers of whole replicas are tied to each core; */
    struct sl_machine_turns roaming; /* if the operating system moves coordinates from core to core */
};

/* Return seconds, on one place. */
double sl_machine_product(const struct sl_machine *machine, enum sl_dtype type, int m, int n, int k, bool a_transposed,
                          bool b_transposed);
double sl_machine_kernels(const struct sl_machine *machine, enum sl_machine_kernel kind, double elements);
double sl_machine_attention(const struct sl_machine *machine, double multiply_adds);
double sl_machine_action(const struct sl_machine *machine);
double sl_machine_far(const struct sl_machine *machine, double bytes);
/* Returns the time to read or write BYTES, for a place that cycles through USED bytes: a lower bound for any such
 * work. */
double sl_machine_moved(const struct sl_machine *machine, double bytes, double used);
double sl_machine_message(const struct sl_machine *machine, enum sl_link link, double bytes);
/* Returns the time of a call of MEMBERS; BYTES: the larger of a member's input and output. Rings, as in Thakur,
 * Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005; or the one message of a
 * ppermute. TURNS: costs of sharing cores, or NULL. */
double sl_machine_collective(const struct sl_machine *machine, const struct sl_machine_turns *turns, enum sl_link link,
                             enum sl_operation operation, int members, double bytes);

/* Adds the time of a call, as above but of engine mpi and over several nodes, to SECONDS [SL_LINKS], by class of link.
 * NODE_OF [members] has the members' nodes. Messages, bytes and the algorithm are those of collectives/costs; members
 * of a node share its link to the network. A ppermute goes to other nodes. */
void sl_machine_call_over_nodes(const struct sl_machine *machine, enum sl_operation operation, int members,
                                const int *node_of, double bytes, double *seconds);

/* Returns the floats of a block of such a call: whole ones, and at least 1 unless it is a barrier. */
size_t sl_machine_elements(enum sl_operation operation, int members, double bytes);

/* Returns the seconds of a core per member and call for MEMBERS sharing cores: interpolated between measured group
 * sizes, proportional to the members beyond the largest. */
double sl_machine_turn(const struct sl_machine_turns *turns, int members);

/* Returns the bytes of its own memory that a member reads and writes in such a call, besides the link's traffic. */
double sl_machine_touched(enum sl_operation operation, int members, double bytes);

/* Returns the link between two coordinates. */
enum sl_link sl_machine_link(const struct sl_machine *machine, int coordinate, int other);
/* Returns the number of the coordinate's node. */
int sl_machine_node(const struct sl_machine *machine, int coordinate);
/* Returns the number of cores that COORDINATES share; 0: each has a place of its own. */
int sl_machine_sharing(const struct sl_machine *machine, int coordinates);
/* Whether COORDINATES sharing cores have whole replicas on each core, REPLICAS in total. */
bool sl_machine_ties(const struct sl_machine *machine, int coordinates, int replicas);
/* Returns the number of coordinates with places; INT_MAX if they may share. */
int sl_machine_room(const struct sl_machine *machine);
/* Returns the speed of the slowest place that COORDINATES use, with so many REPLICAS: all others wait for it, and
 * its coordinate stays there for the whole run. If coordinates move from place to place, returns the mean of these
 * places. */
double sl_machine_speed(const struct sl_machine *machine, int coordinates, int replicas);
/* Returns the bytes of the smallest place that COORDINATES use; 0: unknown. */
double sl_machine_memory(const struct sl_machine *machine, int coordinates);

#endif
