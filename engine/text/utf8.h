/* utf8.h - one UTF-8 character at a time, strict: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef HR_UTF8_H
#define HR_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* What starts at s (n >= 1 bytes): > 0 bytes of a whole character; 0: all n bytes are the start of a character that is
 * not complete; < 0: so many bytes that no continuation can make valid (the part that becomes one U+FFFD). */
static inline int hr_utf8_step(const uint8_t *s, size_t n) {
    uint8_t c = s[0];
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return -1;
    int want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;  /* the second byte excludes overlong forms, */
    uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf; /* surrogates and what lies above U+10FFFF */
    for (int i = 1; i < want; i++) {
        if ((size_t)i == n) return 0;
        if (s[i] < low || s[i] > high) return -i;
        low = 0x80, high = 0xbf;
    }
    return want;
}

/* Code point of the whole character of `length` bytes at s. */
static inline uint32_t hr_utf8_point(const uint8_t *s, int length) {
    static const uint8_t lead[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t point = s[0] & lead[length];
    for (int i = 1; i < length; i++) point = point << 6 | (s[i] & 0x3fu);
    return point;
}

/* Length of the valid UTF-8 that s starts with. */
static inline size_t hr_utf8_run(const uint8_t *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        if (s[at] < 0x80) {
            at++;
            continue;
        }
        int step = hr_utf8_step(s + at, n - at);
        if (step <= 0) break;
        at += (size_t)step;
    }
    return at;
}

#endif
