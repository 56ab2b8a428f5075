/* control.h - requests to the watcher of a run, through a socket beside the run's steps in memory
 * (layers/records/snapshot/protection_folder.h). The socket's name depends on the directory of --save.
 *
 * A request is one line of text, from a process of this user: the next mesh. The answer is one line: "resized ..." once
 * the run trains on that mesh, or the reason for a refusal. */
#ifndef SL_DRIVERS_TRAINING_RESTART_CONTROL_H
#define SL_DRIVERS_TRAINING_RESTART_CONTROL_H

#include "spmd/base/error.h"

enum { SL_CONTROL_TEXT = 1024 };
/* Beginning of the answer to a request that has succeeded. */
#define SL_CONTROL_DONE "resized "

/* Listens for requests to the run in SAVE. Returns the descriptor; -1: another watcher listens there, or listening is
 * impossible. */
int sl_control_listen(const char *save);
/* Stops listening, and removes the socket's name. */
void sl_control_close(int descriptor, const char *save);
/* Reads a request from DESCRIPTOR into TEXT. Returns a descriptor for the answer; -1: there is no request. */
int sl_control_take(int descriptor, char text[SL_CONTROL_TEXT]);
/* Answers with a line, and closes the descriptor ANSWER. */
void sl_control_answer(int answer, const char *text);

/* Sends REQUEST to the watcher of the run in SAVE and waits for the answer. SL_BAD_INPUT if no watcher listens. */
int sl_control_ask(const char *save, const char *request, char answer[SL_CONTROL_TEXT], struct sl_error *error);

/* Whether a watcher listens beside FOLDER, a folder of steps in memory. */
bool sl_control_listens(const char *folder);
/* Removes the socket beside FOLDER. */
void sl_control_remove(const char *folder);

#endif
