/* launched.h - a run's processes on this machine, below its launcher.
 *
 * After one of its processes has died, a launcher may take seconds to end. A watcher of the processes themselves knows
 * at once. */
#ifndef SL_DRIVERS_TRAINING_RESTART_LAUNCHED_H
#define SL_DRIVERS_TRAINING_RESTART_LAUNCHED_H

#include <stdbool.h>
#include <sys/types.h>

/* Zero-initialize; free with sl_launched_free. */
struct sl_launched {
    int count, room;
    struct sl_launched_process {
        pid_t process;
        int descriptor; /* readable once the process has ended */
        int rank;       /* in its launcher's count; -1: not known */
    } *list;
};

/* Lists the processes below LAUNCHER whose program is the file PROGRAM. */
void sl_launched_find(struct sl_launched *launched, pid_t launcher, const char *program);
/* Returns the number of listed processes that have ended. *RANK becomes the rank of the first of them. */
int sl_launched_ended(const struct sl_launched *launched, int *rank);
enum { SL_EARS = 3 };

/* Waits until one of the descriptors OTHER can be read (a negative one never can), until SECONDS are over (negative: no
 * limit), or, if ENDS, until a listed process ends. Returns the number of the first descriptor that can be read; -1:
 * none can. */
int sl_launched_wait(const struct sl_launched *launched, bool ends, const int other[SL_EARS], double seconds);
/* Kills LAUNCHER and all processes below it by SIGKILL. */
void sl_launched_kill(pid_t launcher);
void sl_launched_free(struct sl_launched *launched);

#endif
