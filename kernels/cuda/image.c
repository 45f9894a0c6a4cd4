/* image.c - fatbin: a header of 16 bytes (magic, version, its size, bytes that follow), then entries: kind, version, size of their header,
 * bytes, ..., architecture at 28. Kind 2 is an ELF file, one architecture; others (PTX) are passed over.
 *
 * In the ELF file a kernel K has sections .text.K, .nv.shared.K and .nv.info.K; attributes are (format, number, 16 bits) or, in format 4,
 * (format, number, size, payload). From sm_90 on the first 1,024 bytes of shared memory are the system's and counted in its section. */
#include "kernels/cuda/image.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

enum { FATBIN_MAGIC = (int)0xba55ed50, FATBIN_HEADER = 16, ENTRY_HEADER = 64, KIND_ELF = 2 };
enum { FORMAT_SIZED = 4, ATTR_MAX_THREADS = 0x05, ATTR_FRAME_SIZE = 0x11, ATTR_REGISTERS = 0x2f };
enum { SYSTEM_SHARED = 1024 };

typedef struct elf_file {
    const uint8_t *bytes;
    size_t n;
    const Elf64_Shdr *sections;
    size_t n_sections;
    const char *names;   /* of sections */
    const char *strings; /* of symbols */
    const Elf64_Sym *symbols;
    size_t n_symbols;
} elf_file;

static uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static bool inside(const elf_file *f, const Elf64_Shdr *s) {
    return s->sh_type == SHT_NOBITS || (s->sh_offset <= f->n && s->sh_size <= f->n - s->sh_offset);
}

static bool elf_open(elf_file *f, const uint8_t *bytes, size_t n) {
    *f = (elf_file){.bytes = bytes, .n = n};
    const Elf64_Ehdr *head = (const void *)bytes;
    if (n < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64)
        return false;
    if (head->e_shoff > n || head->e_shnum > (n - head->e_shoff) / sizeof(Elf64_Shdr)) return false;
    f->sections = (const void *)(bytes + head->e_shoff), f->n_sections = head->e_shnum;
    if (head->e_shstrndx >= f->n_sections) return false;
    for (size_t i = 0; i < f->n_sections; i++)
        if (!inside(f, &f->sections[i])) return false;
    f->names = (const char *)bytes + f->sections[head->e_shstrndx].sh_offset;
    for (size_t i = 0; i < f->n_sections; i++) {
        const Elf64_Shdr *s = &f->sections[i];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= f->n_sections) continue;
        f->symbols = (const void *)(bytes + s->sh_offset), f->n_symbols = s->sh_size / sizeof(Elf64_Sym);
        f->strings = (const char *)bytes + f->sections[s->sh_link].sh_offset;
    }
    return f->symbols != NULL;
}

/* The section "prefix" + symbol; NULL: none. */
static const Elf64_Shdr *section_of(const elf_file *f, const char *prefix, const char *symbol) {
    const size_t n = strlen(prefix);
    for (size_t i = 0; i < f->n_sections; i++) {
        const char *name = f->names + f->sections[i].sh_name;
        if (strncmp(name, prefix, n) == 0 && strcmp(name + n, symbol) == 0) return &f->sections[i];
    }
    return NULL;
}

/* Payload of the next attribute with this number, from *at on; NULL: no more. */
static const uint8_t *next_attribute(const elf_file *f, const Elf64_Shdr *s, uint8_t number, size_t *at) {
    while (*at + 4 <= s->sh_size) {
        const uint8_t *p = f->bytes + s->sh_offset + *at;
        const size_t size = p[0] == FORMAT_SIZED ? (size_t)(p[2] | p[3] << 8) : 0;
        *at += 4 + size;
        if (*at > s->sh_size) return NULL;
        if (p[1] == number && size >= 8) return p + 4;
    }
    return NULL;
}

/* An attribute of the file that is said of each symbol by its index. */
static uint32_t attribute_of(const elf_file *f, uint8_t number, const char *symbol) {
    const Elf64_Shdr *info = section_of(f, ".nv.info", "");
    const uint8_t *p;
    for (size_t at = 0; info && (p = next_attribute(f, info, number, &at)) != NULL;) {
        const uint32_t index = load_u32(p);
        if (index < f->n_symbols && strcmp(f->strings + f->symbols[index].st_name, symbol) == 0) return load_u32(p + 4);
    }
    return 0;
}

/* Instructions are 16 bytes; the low 12 bits are the opcode, bits 73 to 75 of loads how much they load (6: 16 bytes). */
static void count_instructions(const elf_file *f, const Elf64_Shdr *text, hr_cuda_kernel_image *k) {
    enum { LDG = 0x981, LDGSTS = 0xfae, LDSM = 0x83b, HMMA = 0x23c, IMMA = 0x237, LDL = 0x983, STL = 0x387 };
    enum { IDP = 0x226 };
    for (size_t i = 0; i + 16 <= text->sh_size; i += 16) {
        const uint64_t low = load_u64(f->bytes + text->sh_offset + i),
                       high = load_u64(f->bytes + text->sh_offset + i + 8);
        switch (low & 0xfff) {
        case LDG:
            k->loads16 += (high >> 9 & 7) == 6;
            break;
        case LDGSTS:
            k->copies++;
            break;
        case LDSM:
            k->fragments++;
            break;
        case HMMA:
        case IMMA:
            k->mma++;
            break;
        case IDP:
            k->dots++;
            break;
        case LDL:
        case STL:
            k->local++;
            break;
        default:
            break;
        }
    }
}

static hr_status walk_elf(const elf_file *f, uint32_t arch, hr_cuda_image_each *each, void *context) {
    static const char text_prefix[] = ".text.";
    for (size_t i = 0; i < f->n_sections; i++) {
        const char *name = f->names + f->sections[i].sh_name;
        if (strncmp(name, text_prefix, sizeof text_prefix - 1) != 0) continue;
        const char *symbol = name + sizeof text_prefix - 1;
        hr_cuda_kernel_image k = {.arch = arch,
                                  .registers = attribute_of(f, ATTR_REGISTERS, symbol),
                                  .stack = attribute_of(f, ATTR_FRAME_SIZE, symbol)};
        snprintf(k.symbol, sizeof k.symbol, "%s", symbol);
        const Elf64_Shdr *shared = section_of(f, ".nv.shared.", symbol), *info = section_of(f, ".nv.info.", symbol);
        const uint32_t system = arch >= 90 ? SYSTEM_SHARED : 0;
        if (shared && shared->sh_size > system) k.shared = (uint32_t)shared->sh_size - system;
        size_t at = 0;
        const uint8_t *threads = info ? next_attribute(f, info, ATTR_MAX_THREADS, &at) : NULL;
        if (threads) k.threads = load_u32(threads);
        count_instructions(f, &f->sections[i], &k);
        HR_TRY(each(&k, context));
    }
    return HR_OK;
}

/* An entry of the container. */
typedef struct entry {
    uint32_t kind, arch;
    const uint8_t *bytes;
    size_t n;
} entry;

/* The entry at *at, which moves on. False at the end, with *whole telling whether the container ends with an entry. */
static bool next_entry(const uint8_t *end, const uint8_t **at, entry *out, bool *whole) {
    const uint8_t *p = *at;
    const size_t left = (size_t)(end - p);
    *whole = left < ENTRY_HEADER;
    if (left < ENTRY_HEADER) return false;
    const uint32_t head = load_u32(p + 4);
    const uint64_t bytes = load_u64(p + 8);
    if (head < ENTRY_HEADER || head > left || bytes > left - head) return false;
    *out = (entry){load_u32(p) & 0xffff, load_u32(p + 28), p + head, (size_t)bytes};
    *at = p + head + bytes;
    return true;
}

hr_status hr_cuda_image_walk(const hr_cuda_image *image, uint32_t arch, hr_cuda_image_each *each, void *context) {
    const uint8_t *data = image->data, *at = data + FATBIN_HEADER;
    if (load_u32(data) != (uint32_t)FATBIN_MAGIC)
        HR_FAIL(HR_ERR_INPUT, "the image of kernels %s is no fatbin; build again", image->name);
    entry e;
    bool whole;
    while (next_entry(data + FATBIN_HEADER + load_u64(data + 8), &at, &e, &whole)) {
        elf_file f;
        if (e.kind != KIND_ELF || (arch && e.arch != arch)) continue;
        if (!elf_open(&f, e.bytes, e.n))
            HR_FAIL(HR_ERR_INPUT, "the image of kernels %s has no ELF file for sm_%u that can be read; build again",
                    image->name, e.arch);
        HR_TRY(walk_elf(&f, e.arch, each, context));
    }
    if (!whole) HR_FAIL(HR_ERR_INPUT, "the image of kernels %s is cut short; build again", image->name);
    return HR_OK;
}

uint32_t hr_cuda_image_arch(const hr_cuda_image *image, uint32_t major, uint32_t minor) {
    const uint8_t *data = image->data, *at = data + FATBIN_HEADER;
    const uint32_t capability = 10 * major + minor;
    uint32_t best = 0;
    entry e;
    bool whole;
    if (load_u32(data) != (uint32_t)FATBIN_MAGIC) return 0;
    while (next_entry(data + FATBIN_HEADER + load_u64(data + 8), &at, &e, &whole))
        if (e.kind == KIND_ELF && e.arch / 10 == major && e.arch <= capability && e.arch > best) best = e.arch;
    return best;
}

typedef struct search {
    const char *symbol;
    hr_cuda_kernel_image *out;
    bool found;
} search;

static hr_status look_at(const hr_cuda_kernel_image *k, void *context) {
    search *s = context;
    if (strcmp(k->symbol, s->symbol) == 0) *s->out = *k, s->found = true;
    return HR_OK;
}

bool hr_cuda_image_find(const char *symbol, uint32_t major, uint32_t minor, hr_cuda_kernel_image *out) {
    search s = {.symbol = symbol, .out = out};
    for (const hr_cuda_image *image = hr_cuda_images; image->name && !s.found; image++) {
        const uint32_t arch = hr_cuda_image_arch(image, major, minor);
        if (arch && hr_cuda_image_walk(image, arch, look_at, &s) != HR_OK) return false;
    }
    return s.found;
}
