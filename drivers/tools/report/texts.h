/* texts.h - style sheets and the script of a page, from files in this folder. */
#ifndef SL_DRIVERS_TOOLS_REPORT_TEXTS_H
#define SL_DRIVERS_TOOLS_REPORT_TEXTS_H

extern const char report_chart_css[]; /* colours of SVG, also in separate files */
extern const char report_page_css[];
extern const char report_page_js[];

#endif
