/* test_kernels.h - what the kernels of the tests of the machine are given (test_kernels.cu). */
#ifndef HR_TEST_KERNELS_H
#define HR_TEST_KERNELS_H

#include <stdint.h>

/* test_row_sum: y[row] = sum of x[row][cols]; grid: rows, shared memory: 4 cols bytes. */
typedef struct hr_test_sum {
    const float *x; /* [rows][cols] */
    float *y;       /* [rows] */
    uint32_t cols;
} hr_test_sum;

/* test_warp: lanes of mask that are in `callers` do one operation with their word of `in`; [threads] results in out, the others
 * write nothing. */
typedef enum hr_test_warp_op {
    HR_TEST_SHFL,
    HR_TEST_SHFL_XOR,
    HR_TEST_SHFL_UP,
    HR_TEST_SHFL_DOWN,
    HR_TEST_SHFL_64, /* value: (word << 32 | ~word), the upper half of what comes is the result if the lower is right */
    HR_TEST_BALLOT,
    HR_TEST_ANY,
    HR_TEST_ALL,
    HR_TEST_MATCH,
    HR_TEST_ADD,
    HR_TEST_MIN,
    HR_TEST_MAX,
    HR_TEST_UMIN,
    HR_TEST_UMAX,
    HR_TEST_AND,
    HR_TEST_OR,
    HR_TEST_XOR,
    HR_TEST_WARP_OPS
} hr_test_warp_op;
typedef struct hr_test_warp {
    const uint32_t *in; /* [threads]; for votes: whether it is odd */
    uint32_t *out;      /* [threads] */
    uint32_t op, mask, callers, arg, width;
} hr_test_warp;

/* The rest: in and out as the kernel says. */
typedef struct hr_test_io {
    const void *in;
    void *out;
    uint32_t op, n;
} hr_test_io;

/* test_block_votes: in: a word a thread, out: [threads][3] count, and, or of whether it is odd.
 * test_atomics: out: words, see the test.
 * test_bits: in: [n][3] words, out: [n][HR_TEST_BITS] words.
 * test_floats: in: [n] floats, out: [n][HR_TEST_FLOATS] words.
 * test_copy_bytes: in: 17 times 16 bytes, out: the same after copies of 0..16 bytes.
 * test_copy_groups: in: 3 times 16 bytes, out: [4][12] words: before a wait, after wait 2, 1, 0.
 * test_ldmatrix: in: [32][8] uint16, out: [4 kinds][32 lanes][4] words (x2, x4, x2.trans, x4.trans).
 * test_mma: in: [32] hr_test_fragments, out: [32][4] words; op: which.
 * test_order: out: [blocks][threads] in which place thread and block ran, [blocks][threads] after a barrier.
 * test_poison: out: [blocks][2][32] words of static and of dynamic shared memory before anybody wrote them.
 * test_leave: out: [threads] sums over those of its warp that stay.
 * test_broken: one rule broken, by op. */
enum { HR_TEST_BITS = 14, HR_TEST_FLOATS = 7 };
typedef struct hr_test_fragments {
    uint32_t a[4], b[2], c[4];
} hr_test_fragments;
typedef enum hr_test_mma { HR_TEST_BF16, HR_TEST_F16, HR_TEST_S8, HR_TEST_E4M3, HR_TEST_MMAS } hr_test_mma;

typedef enum hr_test_rule {
    HR_TEST_NONE,
    HR_TEST_BARRIER_IN_HALF,  /* half of the threads wait at a barrier, the others for them in a warp operation */
    HR_TEST_TWO_BARRIERS,     /* the threads wait at two different barriers */
    HR_TEST_TWO_OPS,          /* lanes of one mask in two operations */
    HR_TEST_MISSING_LANE,     /* a lane of the mask never comes */
    HR_TEST_NOT_IN_MASK,      /* a lane that its own mask lacks */
    HR_TEST_HALF_MMA,         /* mma by 16 lanes */
    HR_TEST_COPY_UNALIGNED,   /* cp.async from an address that is not aligned */
    HR_TEST_COPY_TO_GLOBAL,   /* cp.async to memory that is not shared */
    HR_TEST_LDMATRIX_GLOBAL,  /* ldmatrix from memory that is not shared */
    HR_TEST_ATOMIC_UNALIGNED, /* an atomic operation on an address that is not aligned */
    HR_TEST_STACK,            /* recursion without end */
    HR_TEST_TRAP,             /* __trap() */
    HR_TEST_SHARED_TOO_LARGE, /* 48 KiB and 4 bytes of static shared memory */
    /* What sanitizers find: AddressSanitizer the first three, ThreadSanitizer the others. */
    HR_TEST_READ_SHARED_BEHIND, /* one word behind an array in shared memory */
    HR_TEST_READ_BEHIND,        /* one word behind `in` */
    HR_TEST_WRITE_BEHIND,       /* one word behind `out` */
    HR_TEST_RACE_IN_WARP,       /* lanes exchange through shared memory without __syncwarp */
    HR_TEST_RACE_IN_BLOCK,      /* warps do so, with __syncwarp alone */
    HR_TEST_RACE_OF_BLOCKS,     /* two blocks write one word */
    HR_TEST_NO_FENCE,           /* a block's result behind an atomic flag, without a fence */
    /* The same done rightly: nobody may report them. */
    HR_TEST_RIGHT_WARP,
    HR_TEST_RIGHT_BLOCK,
    HR_TEST_RIGHT_FENCE,
    HR_TEST_RULES
} hr_test_rule;

#endif
