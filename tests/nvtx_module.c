/* A second module with its own copy of NVTX's loader, as a program's libraries have: loaded by nvtx_app. */
#include <nvtx3/nvToolsExt.h>

__attribute__((visibility("default"))) void nvtx_module_work(int n);

void nvtx_module_work(int n) {
    for (int i = 0; i < n; i++) {
        nvtxRangePushA("from the module");
        nvtxRangePop();
    }
}
