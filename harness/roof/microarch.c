#include "harness/roof/microarch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct range {
    const char *vendor;
    unsigned family, model_first, model_last;
    unsigned stepping_first; /* the row is for this stepping and later ones */
    const char *name;
} range;

/* Families and models as AMD's and Intel's manuals and the Linux kernel's intel-family.h list them. For equal models the
 * later stepping stands first. */
/* clang-format off */
static const range ranges[] = {
    {"AuthenticAMD", 0x17, 0x30, 0xaf, 0, "zen2"},
    {"AuthenticAMD", 0x17, 0x00, 0x2f, 0, "zen"},
    {"AuthenticAMD", 0x19, 0x10, 0x1f, 0, "zen4"},
    {"AuthenticAMD", 0x19, 0x60, 0x7f, 0, "zen4"},
    {"AuthenticAMD", 0x19, 0xa0, 0xaf, 0, "zen4"},
    {"AuthenticAMD", 0x19, 0x00, 0x5f, 0, "zen3"},
    {"AuthenticAMD", 0x1a, 0x00, 0x4f, 0, "zen5"},
    {"AuthenticAMD", 0x1a, 0x60, 0x7f, 0, "zen5"},
    {"HygonGenuine", 0x18, 0x00, 0xff, 0, "dhyana"},
    {"GenuineIntel", 0x06, 0x2a, 0x2a, 0, "sandybridge"},
    {"GenuineIntel", 0x06, 0x2d, 0x2d, 0, "sandybridge"},
    {"GenuineIntel", 0x06, 0x3a, 0x3a, 0, "ivybridge"},
    {"GenuineIntel", 0x06, 0x3e, 0x3e, 0, "ivybridge"},
    {"GenuineIntel", 0x06, 0x3c, 0x3c, 0, "haswell"},
    {"GenuineIntel", 0x06, 0x3f, 0x3f, 0, "haswell"},
    {"GenuineIntel", 0x06, 0x45, 0x46, 0, "haswell"},
    {"GenuineIntel", 0x06, 0x3d, 0x3d, 0, "broadwell"},
    {"GenuineIntel", 0x06, 0x47, 0x47, 0, "broadwell"},
    {"GenuineIntel", 0x06, 0x4f, 0x4f, 0, "broadwell"},
    {"GenuineIntel", 0x06, 0x56, 0x56, 0, "broadwell"},
    {"GenuineIntel", 0x06, 0x4e, 0x4e, 0, "skylake"},
    {"GenuineIntel", 0x06, 0x5e, 0x5e, 0, "skylake"},
    {"GenuineIntel", 0x06, 0x55, 0x55, 10, "cooperlake"},
    {"GenuineIntel", 0x06, 0x55, 0x55, 5, "cascadelake"},
    {"GenuineIntel", 0x06, 0x55, 0x55, 0, "skylake"},
    {"GenuineIntel", 0x06, 0x8e, 0x8e, 0, "kabylake"},
    {"GenuineIntel", 0x06, 0x9e, 0x9e, 0, "kabylake"},
    {"GenuineIntel", 0x06, 0xa5, 0xa6, 0, "cometlake"},
    {"GenuineIntel", 0x06, 0x6a, 0x6a, 0, "icelake"},
    {"GenuineIntel", 0x06, 0x6c, 0x6c, 0, "icelake"},
    {"GenuineIntel", 0x06, 0x7d, 0x7e, 0, "icelake"},
    {"GenuineIntel", 0x06, 0x8c, 0x8d, 0, "tigerlake"},
    {"GenuineIntel", 0x06, 0xa7, 0xa7, 0, "rocketlake"},
    {"GenuineIntel", 0x06, 0x97, 0x97, 0, "alderlake"},
    {"GenuineIntel", 0x06, 0x9a, 0x9a, 0, "alderlake"},
    {"GenuineIntel", 0x06, 0xb7, 0xb7, 0, "raptorlake"},
    {"GenuineIntel", 0x06, 0xba, 0xba, 0, "raptorlake"},
    {"GenuineIntel", 0x06, 0xbf, 0xbf, 0, "raptorlake"},
    {"GenuineIntel", 0x06, 0xaa, 0xaa, 0, "meteorlake"},
    {"GenuineIntel", 0x06, 0xac, 0xac, 0, "meteorlake"},
    {"GenuineIntel", 0x06, 0xbd, 0xbd, 0, "lunarlake"},
    {"GenuineIntel", 0x06, 0xb5, 0xb5, 0, "arrowlake"},
    {"GenuineIntel", 0x06, 0xc5, 0xc6, 0, "arrowlake"},
    {"GenuineIntel", 0x06, 0x8f, 0x8f, 0, "sapphirerapids"},
    {"GenuineIntel", 0x06, 0xcf, 0xcf, 0, "emeraldrapids"},
    {"GenuineIntel", 0x06, 0xad, 0xae, 0, "graniterapids"},
    {"GenuineIntel", 0x06, 0xaf, 0xaf, 0, "sierraforest"},
};
/* clang-format on */

void hr_microarch_name(const char *vendor, unsigned family, unsigned model, unsigned stepping, char *out,
                       size_t bytes) {
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const range *r = &ranges[i];
        if (strcmp(r->vendor, vendor) || r->family != family || model < r->model_first || model > r->model_last ||
            stepping < r->stepping_first)
            continue;
        snprintf(out, bytes, "%s", r->name);
        return;
    }
    snprintf(out, bytes, "f%um%u", family, model);
}

const char *hr_product_line(const char *model_name) {
    static const char *const lines[] = {"epyc", "threadripper", "ryzen",  "xeon",     "core",
                                        "atom", "celeron",      "athlon", "neoverse", "graviton"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strcasestr(model_name, lines[i])) return lines[i];
    return "cpu";
}
