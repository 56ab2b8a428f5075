/* machine.h - a machine as predictions see it: how long work of each kind takes there. It is measured
 * (drivers/machine/measure.h), or described by hand in a file (drivers/machine/machine_file.h).
 *
 * A machine is a row of nodes. The coordinates of a mesh fill the places of one node, then those of the next; a place
 * is a core or a device. Where a node has more coordinates than places, they share its cores. */
#ifndef SL_DRIVERS_MACHINE_MACHINE_H
#define SL_DRIVERS_MACHINE_MACHINE_H

#include "spmd/base/dtype.h"
#include "spmd/base/error.h"
#include "spmd/engine.h"
#include "spmd/mesh.h"

/* What an element costs, in classes of kernels. */
enum sl_machine_kernel {
    SL_MACHINE_MOVES,     /* floats that are read or written */
    SL_MACHINE_NORMS,     /* elements that are normalized */
    SL_MACHINE_GELU,      /* elements of an activation */
    SL_MACHINE_SOFTMAX,   /* logits */
    SL_MACHINE_DROPOUT,   /* random words */
    SL_MACHINE_OPTIMIZER, /* parameters that AdamW moves */
    SL_MACHINE_KERNELS
};

/* How far two places are from each other, the nearest first: of one core, as its hyperthreads are, or one place that
 * coordinates share; GPUs that are joined to each other; of one package; of one node; anywhere. */
enum sl_link { SL_LINK_CORE, SL_LINK_GPU, SL_LINK_PACKAGE, SL_LINK_NODE, SL_LINK_NETWORK, SL_LINKS };

/* Their names, and those of kernels, as keys of the file. */
extern const char *const sl_link_name[SL_LINKS], *const sl_machine_kernel_name[SL_MACHINE_KERNELS];

/* The rate of C [m, n] = A [m, k] B [k, n] on one place. */
struct sl_machine_product {
    enum sl_dtype type;
    int m, n, k;
    bool a_transposed, b_transposed;
    double gflops; /* 1e9 multiplications and additions a second */
};

/* The most. */
enum {
    SL_MACHINE_PRODUCTS = 1024,
    SL_MACHINE_NODES = 64,
    SL_MACHINE_SIZES = 16,
    SL_MACHINE_GROUPS = 16,
    SL_MACHINE_SPEEDS = 64 /* places whose speeds are told one by one, and that are measured together */
};

struct sl_machine_nodes {
    int count;                        /* so many alike, one after another */
    int places;                       /* cores or devices of each */
    bool shares;                      /* coordinates may share places; otherwise there are as many at most */
    int core;                         /* neighbouring places of one core; 0 or 1: each is a core, or a device */
    int gpus;                         /* neighbouring places that are GPUs, joined to each other; 0: none are */
    int package;                      /* places that are near each other: of a package, or on one switch */
    double memory;                    /* bytes of each place; 0: unknown */
    double speed;                     /* of its places, as a multiple of the rates */
    double speeds[SL_MACHINE_SPEEDS]; /* of its first places, as multiples of that; 0: 1 */
};

/* What is offloaded comes and goes so fast where nobody says more, as from a disk: bytes a second. */
#define SL_MACHINE_FAR 1e9

/* How fast a place reads and writes memory of which it uses so much in turns, while all others do the same. */
struct sl_machine_memory {
    double bytes, bandwidth; /* a place; bytes a second */
};

/* What it costs to be asleep. 0: nothing, or unknown. */
struct sl_machine_waits {
    double wake;   /* seconds from a message to a receiver that sleeps until it goes on; */
    double nap;    /* the same where it has only just fallen asleep: less, as its core's caches are still warm; */
    double notify; /* and the sender's own time for waking it */
    double awake;  /* for so long one waits before it sleeps; */
    double spread; /* the standard deviation of a short wait, as a share of it */
};

/* A group of coordinates that share cores. */
struct sl_machine_group {
    int members;
    double call;      /* seconds of a core that each of them needs for a call; */
    double bandwidth; /* bytes a second of what it takes from the others in one; 0: the link's */
};

/* What coordinates pay for sharing cores, in seconds. 0: nothing, or unknown. */
struct sl_machine_turns {
    double message; /* that a hand-over takes until the receiver has a core; */
    double call;    /* of a core, that each member of a call needs, where nothing is known of groups; */
    double idle;    /* the share of the time in which a core has nobody to run, while others stand in line elsewhere; */
    int groups;     /* of known sizes, the smallest first: who waits for more members is woken more often */
    struct sl_machine_group group[SL_MACHINE_GROUPS];
};

struct sl_machine {
    char name[96];
    int products, kinds; /* of nodes */
    struct sl_machine_product product[SL_MACHINE_PRODUCTS];
    struct sl_machine_nodes nodes[SL_MACHINE_NODES];
    double kernel[SL_MACHINE_KERNELS]; /* seconds an element */
    double attention;                  /* multiply-adds a second of attention's products, exponentials included */
    double far;                        /* bytes a second to and from where --offload puts them */
    double action;                     /* seconds that each action of a schedule takes beside its work */
    double latency[SL_LINKS];          /* seconds of a message, and of a step of a collective */
    double bandwidth[SL_LINKS];        /* bytes a second */
    int sizes;                         /* of memory, ascending; 0: it is never too slow */
    struct sl_machine_memory memory[SL_MACHINE_SIZES];
    struct sl_machine_waits waits;
    struct sl_machine_turns tied;    /* where as many whole replicas are tied to each core; */
    struct sl_machine_turns roaming; /* and where the operating system moves coordinates from core to core */
};

/* All of these are seconds, on one place. */
double sl_machine_product(const struct sl_machine *machine, enum sl_dtype type, int m, int n, int k, bool a_transposed,
                          bool b_transposed);
double sl_machine_kernels(const struct sl_machine *machine, enum sl_machine_kernel kind, double elements);
double sl_machine_attention(const struct sl_machine *machine, double multiply_adds);
double sl_machine_action(const struct sl_machine *machine);
double sl_machine_far(const struct sl_machine *machine, double bytes);
/* To read or write BYTES of the USED ones that a place goes over in turns: no work that does so takes less. */
double sl_machine_moved(const struct sl_machine *machine, double bytes, double used);
double sl_machine_message(const struct sl_machine *machine, enum sl_link link, double bytes);
/* A call of MEMBERS, each of which has BYTES in the larger of its input and its output. Rings, as in Thakur,
 * Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005. TURNS: how they share
 * cores, or NULL. */
double sl_machine_collective(const struct sl_machine *machine, const struct sl_machine_turns *turns, enum sl_link link,
                             enum sl_operation operation, int members, double bytes);

/* Of a core, that each of MEMBERS needs for a call where they share cores: on a line between groups that are known, and
 * beyond the largest in proportion to the members. */
double sl_machine_turn(const struct sl_machine_turns *turns, int members);

/* The bytes of its own memory that a member reads and writes in such a call, beside what the link takes. */
double sl_machine_touched(enum sl_operation operation, int members, double bytes);

/* The link between two coordinates. */
enum sl_link sl_machine_link(const struct sl_machine *machine, int coordinate, int other);
/* The cores that COORDINATES of a job share; 0: each has a place of its own. */
int sl_machine_sharing(const struct sl_machine *machine, int coordinates);
/* Whether a mesh whose COORDINATES share cores has whole replicas on each, of REPLICAS. */
bool sl_machine_ties(const struct sl_machine *machine, int coordinates, int replicas);
/* Coordinates that have places; INT_MAX where they may share. */
int sl_machine_room(const struct sl_machine *machine);
/* The speed of the slowest of the places that COORDINATES of so many REPLICAS use: all others wait for it, and which of
 * them gets it is settled when a run begins. Where they are moved from place to place, the mean of all places. */
double sl_machine_speed(const struct sl_machine *machine, int coordinates, int replicas);
/* The bytes of the place that has least, of those that COORDINATES use; 0: unknown. */
double sl_machine_memory(const struct sl_machine *machine, int coordinates);

#endif
