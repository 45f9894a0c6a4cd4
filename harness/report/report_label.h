/* report_label.h - numbers and names as people read them, and the axes that tell cells apart. */
#ifndef HR_REPORT_LABEL_H
#define HR_REPORT_LABEL_H

#include "harness/report/report_data.h"

enum { HR_LABEL_BYTES = 160 };

/* Three significant digits, thousands apart: "0.123", "12.3", "1 234"; a dash for what is unknown. A ring of buffers:
 * the text lives until 32 more calls of this header on the thread. */
const char *hr_text_num(double value);
const char *hr_text_count(double value);            /* a whole number */
const char *hr_text_pct(double ratio);              /* 0.834 -> "83 %" */
const char *hr_text_size(double bytes);             /* "32 KiB" */
const char *hr_text_of(double n, const char *noun); /* "1 run", "2 runs" */
/* Bytes of the character of UTF-8 at text; 0 when it is broken: a text that was made to fit may hold half of one. */
size_t hr_text_character(const char *text);
/* Takes out what is left of such characters; returns text. */
char *hr_text_whole(char *text);
/* A file without folders and ending, a synthetic model without "synth:"; at most 40 characters. */
const char *hr_text_model(const json_t *cell);
const char *hr_text_model_short(const json_t *cell); /* at most 22 */
const char *hr_text_type(const json_t *cell);        /* as the files say: "llama 135M Q4_1"; "" when unknown */
const char *hr_text_weights(const json_t *cell);     /* "smollm2-135m int8", activations when they differ */
const char *hr_text_title(const json_t *cell);       /* "smollm2-135m int8, tg128 @ d512, 4 sequences, paged:16" */

/* Axes of a cell, in the order in which a label names them. */
enum { HR_AXES_MOST = 24 };
size_t hr_axes_count(void);
const char *hr_axis_name(size_t i);
size_t hr_axis_of(const char *name); /* of one that is there */
/* The value as a label ("16 sequences"), "" where the axis does not concern the cell. */
const char *hr_axis_text(const json_t *cell, size_t i);

#endif
