/* texts.h - style sheets and the script of a page, which lie beside this file. */
#ifndef SL_DRIVERS_REPORT_TEXTS_H
#define SL_DRIVERS_REPORT_TEXTS_H

extern const char report_chart_css[]; /* colours of SVG, also in a file of its own */
extern const char report_page_css[];
extern const char report_page_js[];

#endif
