/* shim_copy.cpp - cp.async of the running thread: copies stand in groups; waiting for all but the newest N groups does those of the
 * older ones. Late: a copy waits as long as the rules allow, so that whoever forgets to wait reads what was there before. */
#include "tests/cuda_on_cpu/shim_schedule.hpp"

namespace hr_shim {

bool copy_keep(void *to, const void *from, uint32_t bytes) {
    stats.copies++;
    if (!mode.copies_late) return false;
    thread *me = running();
    if (me->n_copies == MAX_COPIES) misuse("cp.async: over 256 copies under way in one thread");
    me->copies[me->n_copies++] = {to, from, bytes, me->group};
    return true;
}

void copy_commit() {
    running()->group++;
}

bool copy_pop(unsigned pending, void **to, const void **from, uint32_t *bytes) {
    thread *me = running();
    if (me->n_copies == 0 || me->copies[0].group + pending >= me->group) return false;
    *to = me->copies[0].to;
    *from = me->copies[0].from;
    *bytes = me->copies[0].bytes;
    me->n_copies--;
    for (unsigned i = 0; i < me->n_copies; i++) me->copies[i] = me->copies[i + 1];
    return true;
}

} // namespace hr_shim
