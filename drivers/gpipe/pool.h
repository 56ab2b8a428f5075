/* pool.h - worker threads that wait at a queue for tasks, as in the article, and what the article asks for beside them:
 * a watcher that starts workers again, tasks that are tried again, and a number of workers that changes.
 *
 * The thread that opens the pool is its main thread. It issues tasks into one queue, from which idle workers get them,
 * and takes them from another one, into which workers put them once they are done. It is the watcher, too: a worker
 * that dies leaves its task in that queue, so whoever takes it learns of the death. So there is no watcher that could
 * fail while somebody waits for it. */
#ifndef SL_DRIVERS_GPIPE_POOL_H
#define SL_DRIVERS_GPIPE_POOL_H

#include <pthread.h>
#include <stdbool.h>

#include "spmd/base/error.h"

enum { GPIPE_MOST_WORKERS = 64 };

/* How an attempt ends: GPIPE_DIED if its worker did, GPIPE_RAISED if it may be tried again, GPIPE_BROKEN if not. */
enum gpipe_end { GPIPE_DONE, GPIPE_RAISED, GPIPE_DIED, GPIPE_BROKEN };

struct gpipe_task {
    bool backward;
    int microbatch, partition;
    const float *from; /* forward: x; backward: dy */
    float *to;         /* forward: y; backward: dx, or NULL */
    /* The pool's: */
    bool stops;   /* the worker that gets it ends */
    int attempts; /* so far */
    int worker;   /* its number */
    void *queue;  /* the worker's, of its device */
    double began; /* seconds, as sl_now() */
    enum gpipe_end end;
    struct gpipe_task *next; /* in a queue */
};

/* First in, first out. */
struct gpipe_queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct gpipe_task *first, **last;
};

/* Does TASK. A call that does not return, but ends the thread by pthread_exit, is the worker's death. */
typedef enum gpipe_end gpipe_execute(void *arg, struct gpipe_task *task);

struct gpipe_pool;

struct gpipe_worker {
    struct gpipe_pool *pool;
    pthread_t thread;
    bool lives;
    double began;            /* seconds, as sl_now() */
    struct gpipe_task *task; /* under way */
};

struct gpipe_pool {
    struct gpipe_queue in, out;
    gpipe_execute *execute;
    void *arg;
    int device;   /* on which workers compute; -1: the CPU */
    int attempts; /* that a task has at most */
    int workers;  /* that live */
    struct gpipe_worker worker[GPIPE_MOST_WORKERS];
    int started, died; /* of all workers so far */
    int tried;         /* attempts */
    double lived;      /* seconds of all workers that have ended, */
    double worked;     /* and of all attempts that came to an end */
};

/* Opens a pool without workers; the caller has filled in execute, arg, device and attempts. */
void gpipe_pool_open(struct gpipe_pool *pool);
/* Starts or ends workers until there are WORKERS. No task may be under way. SL_FAILED if no thread can be started. */
int gpipe_pool_resize(struct gpipe_pool *pool, int workers, struct sl_error *error);
/* Hands TASK, which lies still until it is taken, to the next idle worker. */
void gpipe_pool_issue(struct gpipe_pool *pool, struct gpipe_task *task);
/* Waits until a task is GPIPE_DONE, is GPIPE_BROKEN, or has failed in all of its attempts; returns it. A task that
 * fails before is issued again, behind the others; for a worker that has died another one is started. */
struct gpipe_task *gpipe_pool_take(struct gpipe_pool *pool);
/* Ends all workers. No task may be under way. */
void gpipe_pool_close(struct gpipe_pool *pool);

#endif
