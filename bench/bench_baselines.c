#include "bench/bench.h"
void hr_bench_register_baselines(bool smoke) {
    (void)smoke;
}
