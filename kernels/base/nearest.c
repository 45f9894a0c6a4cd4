#include "kernels/base/nearest.h"

#include <stddef.h>
#include <string.h>

enum { LONGEST = 64 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. */
static size_t distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), rows[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last, last = now, now = oldest;
    }
    return last[m];
}

/* Dashes do not count towards the length that decides how many slips may be forgiven. */
const char *hr_nearest(const char *word, const char *const *candidates) {
    size_t n = strlen(word + strspn(word, "-"));
    size_t allowed = n <= 2 ? 0 : n <= 4 ? 1 : n <= 7 ? 2 : 3;
    const char *best = NULL;
    size_t best_distance = allowed + 1;
    for (; *candidates; candidates++) {
        size_t d = distance(word, *candidates);
        if (d < best_distance) best = *candidates, best_distance = d;
    }
    return best;
}
