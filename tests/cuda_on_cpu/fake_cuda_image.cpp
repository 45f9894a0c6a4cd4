// fake_cuda_image.cpp - what stands in a fatbin: whether a device can run it, and its kernels with registers and shared memory.
//
// A fatbin is a header and a list of entries, each code for one architecture: an ELF file (cubin) or PTX. Sections of a cubin
// tell all that is asked here: .text.KERNEL that a kernel is there (and its symbol's number), .nv.shared.KERNEL its static
// shared memory, .nv.info.KERNEL threads of a block, .nv.info registers and frames of all.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cstring>
#include <elf.h>
#include <functional>

namespace fake {

struct container {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; // of all entries
};
struct item {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, options_at;
    uint16_t minor, major; // of the version of its code
    uint32_t arch;         // 90
    uint32_t name_at, name_bytes;
    uint64_t flags;
};
enum : uint32_t {
    MAGIC = 0xba55ed50,
    PTX = 1,
    CUBIN = 2,
    PACKED = 0x2000 | 0x8000,
    MAX_THREADS = 0x05,
    FRAME = 0x11,
    REGISTERS = 0x2f
};
enum : size_t { MOST = (size_t)1 << 32 };

// Attributes: records of format, name and a value, or, for format 4, a size with that many bytes behind it. Calls
// found(context, values) for those of one name.
static void each_attribute(const unsigned char *at, size_t bytes, unsigned name, size_t n,
                           const std::function<void(const uint32_t *)> &found) {
    for (size_t i = 0; i + 4 <= bytes;) {
        uint16_t size = 0;
        uint32_t v[4];
        if (at[i] == 4) memcpy(&size, at + i + 2, 2);
        if (at[i] == 4 && at[i + 1] == name && size >= 4 * n && i + 4 + 4 * n <= bytes) {
            memcpy(v, at + i + 4, 4 * n);
            found(v);
        }
        i += 4 + (size_t)size;
    }
}

static bool named(const char *name, const char *prefix, std::string *rest) {
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n)) return false;
    *rest = name + n;
    return true;
}

static bool read_cubin(const unsigned char *at, size_t bytes, module *out) {
    Elf64_Ehdr h;
    if (bytes < sizeof h || memcmp(at, ELFMAG, SELFMAG)) return false;
    memcpy(&h, at, sizeof h);
    std::vector<Elf64_Shdr> sections(h.e_shnum);
    if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shoff + sections.size() * sizeof(Elf64_Shdr) > bytes ||
        h.e_shstrndx >= sections.size())
        return false;
    memcpy(sections.data(), at + h.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    const char *names = (const char *)at + sections[h.e_shstrndx].sh_offset;
    std::string kernel;
    std::map<uint32_t, image_kernel *> by_symbol;
    for (const auto &s : sections)
        if (named(names + s.sh_name, ".text.", &kernel)) by_symbol[s.sh_info & 0xffffff] = &out->kernels[kernel];
    for (const auto &s : sections) {
        const unsigned char *here = at + s.sh_offset;
        if (named(names + s.sh_name, ".nv.shared.", &kernel) && out->kernels.count(kernel))
            out->kernels[kernel].smem_static = (uint32_t)s.sh_size;
        if (named(names + s.sh_name, ".nv.info.", &kernel) && out->kernels.count(kernel))
            each_attribute(here, s.sh_size, MAX_THREADS, 3,
                           [&](const uint32_t *v) { out->kernels[kernel].max_threads = v[0] * v[1] * v[2]; });
        if (strcmp(names + s.sh_name, ".nv.info")) continue;
        each_attribute(here, s.sh_size, REGISTERS, 2, [&](const uint32_t *v) {
            if (by_symbol.count(v[0])) by_symbol[v[0]]->registers = v[1];
        });
        each_attribute(here, s.sh_size, FRAME, 2, [&](const uint32_t *v) {
            if (by_symbol.count(v[0])) by_symbol[v[0]]->local_bytes = v[1];
        });
    }
    return true;
}

CUresult read_fatbin(const void *image, const settings &s, module *out) {
    const unsigned char *at = (const unsigned char *)image, *best = nullptr;
    container c;
    item chosen{};
    bool ptx = false;
    memcpy(&c, at, sizeof c);
    if (c.magic != MAGIC || c.header_bytes < sizeof c || c.bytes > MOST) return CUDA_ERROR_INVALID_IMAGE;
    const uint32_t cc = (uint32_t)(10 * s.major + s.minor);
    for (size_t i = c.header_bytes; i < c.header_bytes + c.bytes;) {
        item e;
        memcpy(&e, at + i, sizeof e);
        if (e.header_bytes < sizeof e || i + e.header_bytes + e.bytes > c.header_bytes + c.bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        ptx = ptx || (e.kind == PTX && e.arch <= cc);
        if (e.kind == CUBIN && e.arch / 10 == cc / 10 && e.arch <= cc && e.arch >= chosen.arch)
            chosen = e, best = at + i + e.header_bytes;
        i += e.header_bytes + e.bytes;
    }
    if (!best && !ptx) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    out->readable = best && !(chosen.flags & PACKED);
    if (out->readable && !read_cubin(best, chosen.bytes, out)) return CUDA_ERROR_INVALID_IMAGE;
    return CUDA_SUCCESS;
}

} // namespace fake
