// fake_cuda_state.hpp - what the files of libcuda_fake.so share: objects and their handles, the door that every call passes,
// memory of devices, streams.
//
// All state stands behind one lock, held from the door (entry) to the end of a call; queued work runs under it too.
#ifndef HR_FAKE_CUDA_STATE_HPP
#define HR_FAKE_CUDA_STATE_HPP

#include "tests/cuda_on_cpu/fake_cuda.h"
#define _Thread_local __thread // the one word of table.h that C++ lacks
#include "tests/cuda_on_cpu/shim.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fake {

struct settings {
    size_t memory = (size_t)4 << 30, pinned = (size_t)4 << 30, l2 = (size_t)60 << 20;
    int devices = 1, sms = 132, major = 9, minor = 0, driver = 13000;
    int clock_mhz = 1980, memory_clock_mhz = 3201, bus_bits = 6144;
    bool managed = true, compression = true, vmm = true, protect = true, hostptr = true;
    std::string name = "Headroom simulated GPU";
    hr_shim_order order = HR_SHIM_ASCENDING; // of threads that could run
    size_t seed = 1;
    bool late = false; // cp.async copies when it is waited for
    hr_shim_mode mode() const;
    int smem_optin() const;
};

settings read_settings();
CUresult attribute(const settings &s, CUdevice_attribute which, int ordinal, int *out);

struct device {
    int ordinal = 0;
    unsigned retained = 0;
    CUresult ruined = CUDA_SUCCESS; // what every call in its context returns from now on
    size_t used = 0;
};

struct function {
    device *owner;
    std::string symbol;
    size_t params_bytes;
    uint32_t registers, smem_static, max_threads, local_bytes, max_dynamic;
};
// One kernel as an image describes it.
struct image_kernel {
    uint32_t registers = 0, smem_static = 0, max_threads = 1024, local_bytes = 0;
};
struct module {
    device *owner;
    bool readable; // false: its code is compressed, so every kernel is believed to be in it
    std::map<std::string, image_kernel> kernels;
    std::map<std::string, CUfunction> functions; // found so far
};
// What a fatbin holds for a device. CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU.
CUresult read_fatbin(const void *image, const settings &s, module *out);

struct event {
    device *owner;
    bool timed;
    uint64_t recorded = 0, done = 0; // generations
    uint64_t ns = 0;                 // when the last one ran
    CUstream where = nullptr;
    bool captured = false; // recorded last into a capture: nobody can wait for it
};

// One piece of work; a graph shares it with every queue that it is put into.
struct operation {
    enum what { KERNEL, COPY, SET, RECORD, CALL } what;
    hr_fake_cuda_kind kind;
    std::string name;
    hr_cuda_shape shape{};
    uint32_t smem_static = 0, registers = 0;
    std::vector<unsigned char> data; // parameter, bytes taken from pageable memory, context of a call
    uintptr_t to = 0, from = 0;
    size_t bytes = 0;
    unsigned char value = 0;
    std::shared_ptr<event> mark;
    uint64_t generation = 0;
    void (*call)(const void *) = nullptr;
    std::vector<hr_fake_cuda_range> ranges;
    CUresult fails = CUDA_SUCCESS; // a late fault that was captured
};
using work = std::shared_ptr<const operation>;

struct graph {
    device *owner;
    uint32_t id;
    std::vector<work> nodes;
};
struct graph_exec {
    device *owner;
    uint32_t id;
    std::vector<work> nodes;
};

struct queued {
    work what;
    uint64_t sequence; // order of all queued work
    uint32_t correlation, graph;
    CUresult fails; // a late fault
};
struct capture {
    std::vector<work> nodes;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    bool invalid;
};
struct stream {
    device *owner;
    uint32_t id;
    bool blocking; // waits for the legacy stream, and it for this one
    std::deque<queued> queue;
    std::unique_ptr<capture> capturing;
};

// Objects by handle. Handles are numbers that never come back, so that a stale one is always found out.
template <class T, class H, uintptr_t tag> class registry {
    std::map<uintptr_t, std::shared_ptr<T>> live;
    uintptr_t next = 1;

  public:
    H add(std::shared_ptr<T> object) {
        const uintptr_t handle = tag << 32 | next++ << 4;
        live[handle] = std::move(object);
        return (H)handle;
    }
    std::shared_ptr<T> find(H handle) const {
        const auto at = live.find((uintptr_t)handle);
        return at == live.end() ? nullptr : at->second;
    }
    bool remove(H handle) { return live.erase((uintptr_t)handle) != 0; }
    size_t size() const { return live.size(); }
    const std::map<uintptr_t, std::shared_ptr<T>> &all() const { return live; }
    void remove_of(const device *d) {
        for (auto at = live.begin(); at != live.end();) at = at->second->owner == d ? live.erase(at) : std::next(at);
    }
};

struct state {
    std::recursive_mutex lock;
    bool initialized = false, forked = false;
    settings set;
    std::vector<std::unique_ptr<device>> devices;
    registry<module, CUmodule, 0x1001> modules;
    registry<function, CUfunction, 0x1002> functions;
    registry<event, CUevent, 0x1003> events;
    registry<stream, CUstream, 0x1004> streams;
    registry<graph, CUgraph, 0x1005> graphs;
    registry<graph_exec, CUgraphExec, 0x1006> execs;
    std::map<device *, std::shared_ptr<stream>> legacy;
    uint64_t sequence = 0;
    uint32_t next_stream = 7, next_graph = 1;
    hr_fake_cuda_counts done{}; // the part HR_FAKE_CUDA_DONE, and peak_bytes
    bool observed = false;
    hr_fake_cuda_observer observer{};
};
state &the(); // never destroyed: work may run while the process ends

// ---- the door ----

enum need : unsigned {
    NOTHING = 0,
    STARTED = 1,  // cuInit
    CONTEXT = 3,  // and a current context that is not ruined
    UNSAFE = 4,   // a capture of mode GLOBAL forbids it, and becomes invalid
    RELEASES = 8, // does its work even when it must return an error
    QUIET = 16    // neither counted nor failed by faults
};
// Every function of the driver begins with one.
class entry {
    std::unique_lock<std::recursive_mutex> held;
    const char *name;
    unsigned needs;
    uint64_t start;
    bool stop = false;

  public:
    CUresult result = CUDA_SUCCESS; // what it must return, whatever it does
    device *dev = nullptr;
    uint32_t id;
    CUresult late = CUDA_SUCCESS; // fault for the work that it queues

    entry(const char *function, unsigned need);
    ~entry();
    bool refused() const { return stop; }
    CUresult end(CUresult own) const { return result ? result : own; }
};
#define HR_ENTER(function, need)       \
    fake::entry in(#function, (need)); \
    if (in.refused()) return in.result

device *current(); // of this thread; NULL: none
void ruin(device *d, CUresult why);
bool ruins(CUresult code); // stays in the context
bool loses(CUresult code); // and in the device
struct strike {
    CUresult code;
    bool late;
};
strike next_fault(const char *function); // counts the call
void faults_from_environment();
const char *error_name(CUresult code); // NULL: not known
uint64_t now_ns();

// ---- memory ----

enum class kind { DEVICE, MANAGED, PINNED, MAPPED };
struct region {
    uintptr_t begin;
    size_t bytes;
    enum kind kind;
    device *owner;
    uintptr_t pages;
    size_t pages_bytes;
    bool open; // MAPPED: cuMemSetAccess was called
};
void memory_start();
// Addresses that are never used again, between guards. 0: none left.
uintptr_t take_addresses(size_t bytes, size_t align);
void drop_pages(uintptr_t at, size_t bytes);
// Memory of a kind, filled with NaN. NULL: none left.
const region *make_region(enum kind kind, device *owner, size_t bytes);
void add_region(const region &r);
void open_region(uintptr_t begin);
void drop_region(uintptr_t begin);     // its guards are checked
const region *region_of(uintptr_t at); // that holds the byte; NULL: none
const region *region_at(uintptr_t begin);
// Whether all of it is memory that work of `d` may touch. MAPPED regions side by side count as one.
bool is_reachable(const device *d, uintptr_t at, size_t bytes);
bool is_on_device(uintptr_t at); // DEVICE or MAPPED
void each_region(void (*f)(const region &, void *), void *context);

// While one lives device memory can be touched; `doing` names the work for reports.
class window {
  public:
    explicit window(const char *doing);
    ~window();
};
void now_doing(const char *what);
void release_memory_of(device *d); // all that its context holds
void count_handles(hr_fake_cuda_counts *c);
// Ends the process when one of the words points to memory of the host that is no region.
void refuse_host_pointers(const char *what, const void *words, size_t bytes);
[[noreturn]] void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- streams ----

std::shared_ptr<stream> stream_of(device *d, CUstream handle); // NULL: no such stream of that device
// Into the stream's queue, or into what it captures. Refuses what a capture forbids.
CUresult put(const entry &in, const std::shared_ptr<stream> &s, operation op);
CUresult put_nodes(const entry &in, const std::shared_ptr<stream> &s, const std::vector<work> &nodes, uint32_t graph);
CUresult wait_for(device *d, stream *s, const event *until = nullptr); // all of a stream, or until an event is done
CUresult wait_for_all(device *d);
void drop_queues(device *d);
size_t queued_work();
bool forbid_in_capture(); // a capture that the calling thread must heed: made invalid

} // namespace fake

#endif
