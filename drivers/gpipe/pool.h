/* pool.h - worker threads that wait at a queue for tasks, as in the article, and its suggested extensions: a watcher
 * that restarts workers, retries of tasks, and a variable number of workers.
 *
 * The thread that opens the pool is its main thread. It puts tasks into one queue, from which idle workers take
 * them, and receives finished tasks from another. It is also the watcher: the task of a dead worker goes to the
 * second queue, so the main thread learns of the death. A separate watcher, which could fail while the main thread
 * waits for it, is not needed. */
#ifndef SL_DRIVERS_GPIPE_POOL_H
#define SL_DRIVERS_GPIPE_POOL_H

#include <pthread.h>
#include <stdbool.h>

#include "spmd/base/error.h"

enum { GPIPE_MOST_WORKERS = 64 };

/* Results of an attempt: GPIPE_DIED: its worker died; GPIPE_RAISED: it failed and may be retried; GPIPE_BROKEN: it
 * may not. */
enum gpipe_end { GPIPE_DONE, GPIPE_RAISED, GPIPE_DIED, GPIPE_BROKEN };

struct gpipe_task {
    bool backward;
    int microbatch, partition;
    const float *from; /* forward: x; backward: dy */
    float *to;         /* forward: y; backward: dx, or NULL */
    /* Set by the pool. */
    bool stops;          /* ends the worker that receives it */
    int attempts;        /* so far */
    int worker;          /* index of its worker */
    void *queue;         /* the worker's queue on its device */
    double began, ended; /* of the attempt, in seconds, as sl_now(); set by the worker */
    enum gpipe_end end;
    struct gpipe_task *next; /* in a queue */
};

/* First in, first out. */
struct gpipe_queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct gpipe_task *first, **last;
};

/* Executes TASK. If it ends the thread by pthread_exit instead of returning, the worker is dead. */
typedef enum gpipe_end gpipe_execute(void *arg, struct gpipe_task *task);

struct gpipe_pool;

struct gpipe_worker {
    struct gpipe_pool *pool;
    pthread_t thread;
    bool lives;
    double began;            /* seconds, as sl_now() */
    struct gpipe_task *task; /* present task */
};

struct gpipe_pool {
    struct gpipe_queue in, out;
    gpipe_execute *execute;
    void *arg;
    int device;   /* of the workers; -1: the CPU */
    int attempts; /* limit per task */
    int workers;  /* number of living workers */
    struct gpipe_worker worker[GPIPE_MOST_WORKERS];
    int started, died; /* counts of all workers so far */
    int tried;         /* attempts */
    double lived;      /* total seconds of ended workers, */
    double worked;     /* and of finished attempts */
};

/* Opens a pool without workers; the caller has set execute, arg, device and attempts. */
void gpipe_pool_open(struct gpipe_pool *pool);
/* Starts or ends workers until there are WORKERS. No task may be under way. SL_FAILED if no thread can be started. */
int gpipe_pool_resize(struct gpipe_pool *pool, int workers, struct sl_error *error);
/* Gives TASK to the next idle worker; it must stay valid until it is taken. */
void gpipe_pool_issue(struct gpipe_pool *pool, struct gpipe_task *task);
/* Waits until a task is GPIPE_DONE, is GPIPE_BROKEN, or has failed in all of its attempts; returns it. A task that
 * fails earlier is issued again, behind the others; a dead worker is replaced. */
struct gpipe_task *gpipe_pool_take(struct gpipe_pool *pool);
/* Ends all workers. No task may be under way. */
void gpipe_pool_close(struct gpipe_pool *pool);

#endif
