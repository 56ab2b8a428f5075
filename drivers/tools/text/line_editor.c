/* line_editor.c - edits lines on a terminal with libedit, with a history. */
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "drivers/tools/text/lines_internal.h"

enum { REMEMBERED = 1000 };

struct sl_line_editor {
    struct sl_lines *lines;
    EditLine *edit;
    History *history;
};

static struct sl_line_editor *of(EditLine *edit) {
    void *own = NULL;
    el_get(edit, EL_CLIENTDATA, &own);
    return own;
}

static char *prompt(EditLine *edit) { return (char *)of(edit)->lines->prompt; }

/* Reads a character of one or more bytes; skips invalid ones. */
static int next_character(EditLine *edit, wchar_t *to) {
    mbstate_t state = {0};
    for (;;) {
        const int byte = of(edit)->lines->next_byte(of(edit)->lines);
        if (byte < 0) return byte == SL_BYTE_LAST ? 0 : -1;
        const char c = (char)byte;
        const size_t used = mbrtowc(to, &c, 1, &state);
        if (used == (size_t)-1)
            memset(&state, 0, sizeof state);
        else if (used != (size_t)-2)
            return 1;
    }
}

/* Sets the locale; in a locale of single bytes the editor would not read UTF-8. */
static void choose_locale(void) {
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
}

struct sl_line_editor *sl_line_editor_open(struct sl_lines *lines) {
    struct sl_line_editor *e = calloc(1, sizeof *e);
    HistEvent event;
    if (!e) return NULL;
    choose_locale();
    e->lines = lines;
    e->edit = el_init("shardloop", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->edit || !e->history) {
        sl_line_editor_close(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, REMEMBERED);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, prompt);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_GETCFN, next_character);
    return e;
}

void sl_line_editor_close(struct sl_line_editor *e) {
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->edit) el_end(e->edit);
    free(e);
}

const char *sl_line_editor_next(struct sl_line_editor *e, int *count) {
    HistEvent event;
    *count = 0;
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt, which waits for keys */
    const char *text = el_gets(e->edit, count);
    if (text && *count > 1) history(e->history, &event, H_ENTER, text);
    return text;
}
