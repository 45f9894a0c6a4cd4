// fake_cupti.hpp - what the files of libcupti_fake.so share: faults, values that tests set, and the fake driver below.
#ifndef HR_FAKE_CUPTI_HPP
#define HR_FAKE_CUPTI_HPP

#include "tests/cuda_on_cpu/fake_cuda.h"

#include <cupti.h>

#include <mutex>
#include <string>

namespace cupti {

// Held by every function, and by what the driver reports while it holds its own: so nothing of the driver's is called with it.
std::recursive_mutex &lock();
// What the Nth call of a function must return (HR_FAKE_CUPTI_FAIL); CUPTI_SUCCESS: nothing.
CUptiResult fault(const char *function);
#define HR_CUPTI_ENTER(function)                                     \
    const std::lock_guard<std::recursive_mutex> held(cupti::lock()); \
    if (const CUptiResult refused = cupti::fault(#function)) return refused
// KEY of HR_FAKE_CUPTI, or what is usual.
double fact(const char *key, double usual);
void *driver_symbol(const char *name); // of the fake driver; NULL: it is not there
bool watch();                          // the driver tells what it does from now on

// The profiler hears of work that ran.
void profiler_ran(const hr_fake_cuda_record &record);

} // namespace cupti

#endif
