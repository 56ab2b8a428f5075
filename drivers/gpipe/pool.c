/* pool.c - two queues and the workers between them. */
#include "drivers/gpipe/pool.h"

#include "spmd/device/device.h"
#include "spmd/spmd.h"

/* ---- queues ---- */

static void open_queue(struct gpipe_queue *queue) {
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->filled, NULL);
    queue->first = NULL;
    queue->last = &queue->first;
}

static void close_queue(struct gpipe_queue *queue) {
    pthread_cond_destroy(&queue->filled);
    pthread_mutex_destroy(&queue->lock);
}

static void put(struct gpipe_queue *queue, struct gpipe_task *task) {
    pthread_mutex_lock(&queue->lock);
    task->next = NULL;
    *queue->last = task;
    queue->last = &task->next;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

/* Waits until there is a task, and removes it. */
static struct gpipe_task *get(struct gpipe_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    while (!queue->first) pthread_cond_wait(&queue->filled, &queue->lock);
    struct gpipe_task *task = queue->first;
    queue->first = task->next;
    if (!queue->first) queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return task;
}

/* ---- a worker ---- */

/* Runs as the thread's cleanup if a task ends the thread. */
static void die(void *arg) {
    struct gpipe_worker *worker = arg;
    worker->task->end = GPIPE_DIED;
    worker->task->ended = sl_now();
    sl_device.close();
    put(&worker->pool->out, worker->task);
}

/* Waits for tasks and executes them. */
static void *work(void *arg) {
    struct gpipe_worker *worker = arg;
    struct gpipe_pool *pool = worker->pool;
    void *queue = NULL;
    const bool opened = sl_device.open(pool->device, &queue, NULL) == SL_OK;
    for (bool stops = false; !stops;) {
        struct gpipe_task *task = worker->task = get(&pool->in);
        stops = task->stops;
        task->worker = (int)(worker - pool->worker);
        task->queue = queue;
        task->began = sl_now();
        pthread_cleanup_push(die, worker);
        if (!stops) task->end = opened ? pool->execute(pool->arg, task) : GPIPE_BROKEN;
        task->ended = sl_now();
        pthread_cleanup_pop(0);
        if (stops) sl_device.close();
        put(&pool->out, task);
    }
    return NULL;
}

static int start(struct gpipe_pool *pool, struct gpipe_worker *worker) {
    *worker = (struct gpipe_worker){.pool = pool, .began = sl_now()};
    if (pthread_create(&worker->thread, NULL, work, worker)) return SL_FAILED;
    worker->lives = true;
    pool->workers++;
    pool->started++;
    return SL_OK;
}

/* Joins a thread that has returned or ended. */
static void bury(struct gpipe_pool *pool, struct gpipe_worker *worker) {
    pthread_join(worker->thread, NULL);
    pool->lived += sl_now() - worker->began;
    worker->lives = false;
    pool->workers--;
}

/* ---- the main thread ---- */

void gpipe_pool_open(struct gpipe_pool *pool) {
    open_queue(&pool->in);
    open_queue(&pool->out);
}

/* Ends one worker, whichever is idle first. */
static void end_one(struct gpipe_pool *pool) {
    struct gpipe_task stop = {.stops = true};
    put(&pool->in, &stop);
    get(&pool->out);
    bury(pool, &pool->worker[stop.worker]);
}

int gpipe_pool_resize(struct gpipe_pool *pool, int workers, struct sl_error *error) {
    while (pool->workers > workers) end_one(pool);
    for (int i = 0; pool->workers < workers; i++) {
        if (!pool->worker[i].lives && start(pool, &pool->worker[i]))
            return sl_error_set(error, SL_FAILED, "no thread for worker %d of %d", pool->workers + 1, workers);
    }
    return SL_OK;
}

void gpipe_pool_issue(struct gpipe_pool *pool, struct gpipe_task *task) {
    task->attempts++;
    pool->tried++;
    put(&pool->in, task);
}

/* Returns all issued tasks as GPIPE_BROKEN, since no worker is left. */
static void give_up(struct gpipe_pool *pool) {
    while (pool->in.first) {
        struct gpipe_task *task = get(&pool->in);
        task->end = GPIPE_BROKEN;
        task->began = task->ended = sl_now();
        put(&pool->out, task);
    }
}

struct gpipe_task *gpipe_pool_take(struct gpipe_pool *pool) {
    for (;;) {
        struct gpipe_task *task = get(&pool->out);
        struct gpipe_worker *worker = &pool->worker[task->worker];
        pool->worked += task->ended - task->began; /* not until now: the worker is at its next task already */
        if (task->end == GPIPE_DIED) {
            bury(pool, worker);
            pool->died++;
            if (start(pool, worker) && !pool->workers) give_up(pool); /* otherwise the living workers continue */
        }
        const bool again = task->end != GPIPE_DONE && task->end != GPIPE_BROKEN && task->attempts < pool->attempts;
        if (!again || !pool->workers) return task;
        gpipe_pool_issue(pool, task);
    }
}

void gpipe_pool_close(struct gpipe_pool *pool) {
    while (pool->workers) end_one(pool);
    close_queue(&pool->in);
    close_queue(&pool->out);
}
