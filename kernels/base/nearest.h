/* nearest.h - spelling advice for names that users type: flags, values, subcommands, model shapes. */
#ifndef HR_NEAREST_H
#define HR_NEAREST_H

/* The candidate closest to word by edit distance (swaps of neighbours count one), or NULL when none is near: 1 slip for
 * words of 3 or 4 letters, 2 up to 7, 3 above. candidates is NULL-ended. */
const char *hr_nearest(const char *word, const char *const *candidates);

#endif
