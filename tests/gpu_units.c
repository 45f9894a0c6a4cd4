/* gpu-units --list | NAME: one of the tests of kernels (test_cuda_*.c), run on a GPU. All are in one program, as each would
 * carry the images of all kernels. */
#include <stdio.h>
#include <string.h>

/* X(test_cuda_vec) ...: written by make. */
#include "gpu_units_list.h"

#define X(name) int name##_main(void);
HR_GPU_UNITS(X)
#undef X

static const struct unit {
    const char *name;
    int (*run)(void);
} units[] = {
#define X(name) {#name, name##_main},
    HR_GPU_UNITS(X)
#undef X
};
enum { UNITS = sizeof units / sizeof *units };

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < UNITS; i++) puts(units[i].name);
        return 0;
    }
    for (int i = 0; argc == 2 && i < UNITS; i++)
        if (!strcmp(units[i].name, argv[1])) return units[i].run();
    fprintf(stderr, "usage: gpu-units --list | NAME\n");
    return 2;
}
