/* What the headers of `tesserac build` share: arrays, checks, and launches on the CPU.
 *
 * C99 or C++11; needs the C library only. Functions that may refuse say so by their result, and
 * nothing here writes to a file or ends the program. */
#ifndef TESSERA_H
#define TESSERA_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_AXES 16 /* of an array, at most */
#define TESSERA_FAULT_WORDS 8
#define TESSERA_PRINT_WORDS 131072

enum {
    TESSERA_BOOL, TESSERA_I8, TESSERA_I16, TESSERA_I32, TESSERA_I64, TESSERA_INDEX, TESSERA_U8,
    TESSERA_U16, TESSERA_U32, TESSERA_U64, TESSERA_F32, TESSERA_F64, TESSERA_F16, TESSERA_BF16,
    TESSERA_F8E4M3, TESSERA_F8E5M2
};

enum {
    TESSERA_OK,
    TESSERA_REFUSED,   /* a premise does not hold: `..._refuses` says which */
    TESSERA_NO_MEMORY,
    TESSERA_FAULTED,   /* a lane reported a fault: see `tessera_options.fault` */
    TESSERA_DRIVER,    /* the CUDA driver refused: see `tessera_cuda_kernel.status` */
    TESSERA_NO_FILE,   /* code cannot be read */
    TESSERA_NO_COPY    /* a file tessera_reorder_*.ptx of the folder was not there to make a copy with its axes in another order */
};

/* An array: `data` is its first element, strides are in elements (NULL: row-major without gaps).
 * Of a kernel for a GPU `data` is an address of the device. */
typedef struct tessera_array {
    void *data;
    int32_t dtype;
    int32_t rank;
    const int64_t *shape;
    const int64_t *strides;
} tessera_array;

static inline tessera_array tessera_of(int32_t dtype, const void *data, int32_t rank,
                                       const int64_t *shape, const int64_t *strides)
{
    tessera_array a;
    a.data = (void *)(uintptr_t)data;
    a.dtype = dtype;
    a.rank = rank;
    a.shape = shape;
    a.strides = strides;
    return a;
}

/* --- sizes: integers that may not wrap; `bad` is set where one would, or is divided by 0 -------- */

static inline int64_t tessera_add(int *bad, int64_t a, int64_t b)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) {
        *bad = 1;
        return b > 0 ? INT64_MAX : INT64_MIN;
    }
    return a + b;
}

static inline int64_t tessera_subtract(int *bad, int64_t a, int64_t b)
{
    if ((b < 0 && a > INT64_MAX + b) || (b > 0 && a < INT64_MIN + b)) {
        *bad = 1;
        return b < 0 ? INT64_MAX : INT64_MIN;
    }
    return a - b;
}

static inline int64_t tessera_multiply(int *bad, int64_t a, int64_t b)
{
    int negative = (a < 0) != (b < 0);
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    if (x != 0 && y > (uint64_t)INT64_MAX / x) {
        *bad = 1;
        return negative ? INT64_MIN : INT64_MAX;
    }
    return negative ? -(int64_t)(x * y) : (int64_t)(x * y);
}

static inline int64_t tessera_floor_divide(int *bad, int64_t a, int64_t b)
{
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        *bad = 1;
        return 0;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t tessera_modulo(int *bad, int64_t a, int64_t b)
{
    return b == -1 ? 0 : tessera_subtract(bad, a, tessera_multiply(bad, tessera_floor_divide(bad, a, b), b));
}

static inline int64_t tessera_ceil_divide(int *bad, int64_t a, int64_t b)
{
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        *bad = 1;
        return 0;
    }
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

/* A size that nothing in a call says. */
static inline int64_t tessera_unknown(int *bad)
{
    *bad = 1;
    return 0;
}

static inline int64_t tessera_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tessera_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- what a kernel may rely on of an array ------------------------------------------------------ */

static inline int64_t tessera_element_bytes(int32_t dtype)
{
    switch (dtype) {
    case TESSERA_I16: case TESSERA_U16: case TESSERA_F16: case TESSERA_BF16: return 2;
    case TESSERA_I32: case TESSERA_U32: case TESSERA_F32: return 4;
    case TESSERA_I64: case TESSERA_INDEX: case TESSERA_U64: case TESSERA_F64: return 8;
    default: return 1;
    }
}

/* Element type and rank, i64 and index being the same in memory; no size is negative. */
static inline int tessera_is_a(const tessera_array *a, int32_t dtype, int32_t rank)
{
    int32_t own = a->dtype == TESSERA_INDEX ? TESSERA_I64 : a->dtype, i;
    if (own != (dtype == TESSERA_INDEX ? TESSERA_I64 : dtype) || a->rank != rank)
        return 0;
    for (i = 0; i < rank && a->shape[i] >= 0; i++)
        ;
    return i == rank;
}

static inline int64_t tessera_stride(const tessera_array *a, int32_t axis)
{
    int64_t step = 1;
    int bad = 0;
    int32_t i;
    if (a->strides != NULL)
        return a->strides[axis];
    for (i = a->rank - 1; i > axis; i--)
        step = tessera_multiply(&bad, step, a->shape[i]);
    return step;
}

static inline int tessera_is_empty(const tessera_array *a)
{
    int32_t i;
    for (i = 0; i < a->rank; i++)
        if (a->shape[i] == 0)
            return 1;
    return 0;
}

static inline int tessera_is_contiguous(const tessera_array *a)
{
    int64_t step = 1;
    int bad = 0;
    int32_t i;
    for (i = a->rank - 1; i >= 0; i--) {
        if (a->shape[i] != 1 && tessera_stride(a, i) != step)
            return tessera_is_empty(a);
        step = tessera_multiply(&bad, step, a->shape[i]);
    }
    return 1;
}

/* Whether neighbours along an axis, if there are any, are next to each other. */
static inline int tessera_is_unit(const tessera_array *a, int32_t axis)
{
    return a->shape[axis] <= 1 || tessera_stride(a, axis) == 1;
}

static inline int64_t tessera_magnitude(int64_t a)
{
    return a == INT64_MIN ? INT64_MAX : a < 0 ? -a : a;
}

/* Strides in bytes and sizes of the axes of more than one element, the smallest stride first. */
static inline int32_t tessera_steps(const tessera_array *a, int64_t *stride, int64_t *size, int *bad)
{
    int32_t count = 0, i, j;
    for (i = 0; i < a->rank; i++) {
        int64_t step = tessera_multiply(bad, tessera_magnitude(tessera_stride(a, i)),
                                        tessera_element_bytes(a->dtype));
        if (a->shape[i] <= 1)
            continue;
        for (j = count++; j > 0 && (stride[j - 1] > step || (stride[j - 1] == step && size[j - 1] > a->shape[i])); j--) {
            stride[j] = stride[j - 1];
            size[j] = size[j - 1];
        }
        stride[j] = step;
        size[j] = a->shape[i];
    }
    return count;
}

/* Whether it is plain that no two elements of an array share memory. */
static inline int tessera_is_injective(const tessera_array *a)
{
    int64_t stride[TESSERA_AXES], size[TESSERA_AXES], reach = tessera_element_bytes(a->dtype);
    int bad = 0;
    int32_t count = tessera_steps(a, stride, size, &bad), i;
    if (tessera_is_empty(a))
        return 1;
    for (i = 0; i < count; i++) {
        if (stride[i] < reach)
            return 0;
        reach = tessera_add(&bad, tessera_multiply(&bad, stride[i], size[i] - 1), reach);
    }
    return !bad;
}

/* The lowest address of an array and the one behind its highest. */
static inline void tessera_extent(const tessera_array *a, uint64_t *low, uint64_t *high)
{
    int64_t bytes = tessera_element_bytes(a->dtype), below = 0, above = 0;
    int bad = 0;
    int32_t i;
    for (i = 0; i < a->rank; i++) {
        int64_t reach = tessera_multiply(&bad, tessera_multiply(&bad, a->shape[i] - 1, tessera_stride(a, i)), bytes);
        below = tessera_add(&bad, below, tessera_min(0, reach));
        above = tessera_add(&bad, above, tessera_max(0, reach));
    }
    *low = (uint64_t)(uintptr_t)a->data + (uint64_t)below;
    *high = (uint64_t)(uintptr_t)a->data + (uint64_t)above + (uint64_t)bytes;
}

static inline uint64_t tessera_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The dense run at each place of an array in bytes; `step`: what all steps between places are
 * multiples of, together with what it was. */
static inline uint64_t tessera_run(const tessera_array *a, uint64_t *step)
{
    int64_t stride[TESSERA_AXES], size[TESSERA_AXES];
    int64_t run = tessera_element_bytes(a->dtype);
    int bad = 0, rest = 0;
    int32_t count = tessera_steps(a, stride, size, &bad), i;
    for (i = 0; i < count; i++) {
        if (stride[i] == run && !rest) {
            run = tessera_multiply(&bad, run, size[i]);
        } else {
            rest = 1;
            *step = tessera_gcd(*step, (uint64_t)stride[i]);
        }
    }
    return (uint64_t)run;
}

/* Whether it is plain that two arrays share no memory. */
static inline int tessera_are_apart(const tessera_array *a, const tessera_array *b)
{
    uint64_t a_low, a_high, b_low, b_high, step = 0, a_run, b_run, shift;
    if (tessera_is_empty(a) || tessera_is_empty(b))
        return 1;
    tessera_extent(a, &a_low, &a_high);
    tessera_extent(b, &b_low, &b_high);
    if (a_low >= b_high || b_low >= a_high)
        return 1;
    a_run = tessera_run(a, &step);
    b_run = tessera_run(b, &step);
    if (step == 0 || a->data == b->data)
        return 0;
    shift = b_low >= a_low ? (b_low - a_low) % step : (step - (a_low - b_low) % step) % step;
    return shift >= a_run && shift + b_run <= step;
}

/* --- a call, ready to run ----------------------------------------------------------------------- */

/* Code of a kernel for the CPU. Every thread of a launch calls it: `slots` are the arguments, 8
 * bytes each; `counter` is a word that all threads share, 0 at first; `total` is the number of
 * groups, `gx`, `gy`, `gz` those along each axis of the grid, first axis first (1 where there is
 * none); `chunk` groups are taken at a time; `scratch` is the thread's own, at a multiple of 64. */
typedef void (*tessera_entry)(const int64_t *slots, int64_t *counter, int64_t total, int64_t gx,
                              int64_t gy, int64_t gz, int64_t chunk, void *scratch);

/* The arguments of cuTensorMapEncodeTiled for the slot `slot`; data type, interleave, swizzle,
 * promotion and fill are numbers of the driver's enumerations. */
typedef struct tessera_map {
    int slot;
    int copy; /* the number of the copy that it is of, or -1: of the array whose address is in the slot */
    int data_type;
    uint32_t rank;
    uint64_t sizes[TESSERA_AXES];
    uint64_t strides[TESSERA_AXES]; /* in bytes, without the first axis */
    uint32_t box[TESSERA_AXES];
    uint32_t steps[TESSERA_AXES];
    int interleave, swizzle, promotion, fill;
} tessera_map;

/* A copy that a launch reads: the axes of `source` in another order, lines `pitch` bytes apart. */
typedef struct tessera_copy {
    const tessera_array *source;
    int axes[TESSERA_AXES]; /* outermost first; the last is the one along which elements are next to each other */
    int64_t pitch;
    int64_t alignment; /* of its lines; less than 128 where they run along another axis than those of the array */
    int64_t offset;    /* in the memory of all copies */
    int slot;          /* takes its address, or -1 */
} tessera_copy;

/* `slot` takes an address `offset` bytes into memory; or: `offset` bytes at it are zeroed. */
typedef struct tessera_place {
    int slot;
    int64_t offset;
} tessera_place;

typedef struct tessera_launch {
    const char *file;  /* of the code, beside the header */
    const char *entry; /* its name in there */
    tessera_entry run; /* NULL for a GPU */
    int group_axes;
    int64_t groups[3]; /* along each axis of the grid, first axis first */
    uint32_t grid[3], block[3], cluster[3]; /* x, y, z: x belongs to the last axis */
    uint32_t shared_bytes; /* dynamic shared memory, above 48 KiB to be allowed by an attribute */
    int persistent;        /* more groups than run at once need not be launched */
    int slot_count;
    int64_t *slots;
    int map_count;
    tessera_map *maps;
    int copy_count;
    tessera_copy *copies;
    int64_t copy_bytes;
    int zero_count;
    tessera_place *zeros;
    int kept_count;
    tessera_place *kept;
    int64_t kept_bytes; /* that the launches of a call share */
    int value_count;
    const int *values; /* slots whose value is the address of bytes that go with the launch */
    int workspace_slot, scratch_slot, fault_slot, print_slot; /* or -1 */
    int64_t workspace_bytes, scratch_bytes; /* workspace: zeros, left zero */
    int64_t thread_bytes; /* of `scratch` of a thread on the CPU */
} tessera_launch;

typedef struct tessera_call {
    int count;
    tessera_launch *launches; /* one behind the other */
} tessera_call;

static inline int64_t tessera_bytes(int *bad, const tessera_array *a)
{
    int64_t bytes = tessera_element_bytes(a->dtype);
    int32_t i;
    for (i = 0; i < a->rank; i++)
        bytes = tessera_multiply(bad, bytes, a->shape[i]);
    return bytes;
}

/* A copy of an array, not made yet: elements along the last of `axes` are next to each other, and
 * the lines of them begin at multiples of `alignment` bytes. */
static inline tessera_array tessera_copied(int *bad, const tessera_array *source, const int *axes,
                                           int64_t alignment, int64_t *strides)
{
    int64_t size = tessera_element_bytes(source->dtype);
    int32_t last = source->rank - 1, i;
    int64_t line = tessera_multiply(bad, source->shape[axes[last]], size);
    int64_t step = tessera_ceil_divide(bad, line, alignment) * alignment / size;
    strides[axes[last]] = 1;
    for (i = last - 1; i >= 0; i--) {
        strides[axes[i]] = step;
        step = tessera_multiply(bad, step, source->shape[axes[i]]);
    }
    return tessera_of(source->dtype, NULL, source->rank, source->shape, strides);
}

static inline void tessera_place_copy(int *bad, tessera_launch *launch, int number,
                                      const tessera_array *source, int64_t alignment, int slot)
{
    tessera_copy *copy = &launch->copies[number];
    int64_t size = tessera_element_bytes(source->dtype), lines = 1, bytes;
    int32_t last = source->rank - 1, i;
    for (i = 0; i < last; i++)
        lines = tessera_multiply(bad, lines, source->shape[copy->axes[i]]);
    copy->source = source;
    copy->slot = slot;
    copy->alignment = alignment;
    bytes = tessera_multiply(bad, source->shape[copy->axes[last]], size);
    copy->pitch = tessera_ceil_divide(bad, bytes, alignment) * alignment;
    copy->offset = launch->copy_bytes;
    bytes = tessera_ceil_divide(bad, tessera_multiply(bad, copy->pitch, lines), 128) * 128;
    launch->copy_bytes = tessera_add(bad, launch->copy_bytes, tessera_max(bytes, 128));
}

/* Sizes and strides of a map; `axes` and `box` are innermost first. */
static inline void tessera_fill_map(int *bad, tessera_map *map, const tessera_array *a, int rank,
                                    const int *axes, const uint32_t *box)
{
    int i, empty = 0;
    map->rank = (uint32_t)rank;
    for (i = 0; i < rank; i++)
        empty = empty || a->shape[axes[i]] == 0;
    for (i = 0; i < rank; i++) {
        int64_t size = a->shape[axes[i]], stride = tessera_magnitude(tessera_stride(a, axes[i]));
        map->sizes[i] = empty ? 1 : (uint64_t)size;
        if (i > 0) /* an axis of one element is never stepped along: the driver wants 16 bytes */
            map->strides[i - 1] = size > 1 && !empty
                ? (uint64_t)tessera_multiply(bad, stride, tessera_element_bytes(a->dtype)) : 16;
        map->box[i] = box[i];
        map->steps[i] = 1;
    }
}

/* How a call runs on the CPU. `parallel(context, work, argument)` calls `work(argument)` in every
 * thread that is to take part, at the same time, and returns when all have returned; NULL: the
 * caller's thread alone. `fault`: 8 words for the record of a fault, or NULL. `print`: zeroed words,
 * TESSERA_PRINT_WORDS of them; a kernel that prints needs it. */
typedef struct tessera_options {
    int unchecked; /* not 0: the premises are not looked at */
    void (*parallel)(void *context, void (*work)(void *), void *argument);
    void *context;
    uint64_t *fault;
    uint64_t *print;
} tessera_options;

typedef struct tessera_work {
    const tessera_launch *launch;
    int64_t counter, total, chunk;
    int64_t failed;
} tessera_work;

static inline void *tessera_aligned(void *memory)
{
    return (void *)(((uintptr_t)memory + 63) / 64 * 64);
}

static inline void tessera_work_of_a_thread(void *argument)
{
    tessera_work *w = (tessera_work *)argument;
    const tessera_launch *l = w->launch;
    void *memory = l->thread_bytes ? malloc((size_t)l->thread_bytes + 64) : NULL;
    if (l->thread_bytes && memory == NULL) {
        w->failed = 1;
        return;
    }
    l->run(l->slots, &w->counter, w->total, l->groups[0], l->groups[1], l->groups[2], w->chunk,
           memory ? tessera_aligned(memory) : NULL);
    free(memory);
}

/* Runs a prepared call on the CPU. */
static inline int tessera_run_call(tessera_call *call, const tessera_options *options)
{
    uint64_t fault[TESSERA_FAULT_WORDS];
    char *kept = NULL;
    int i, j, status = TESSERA_OK;
    memset(fault, 0, sizeof fault);
    for (i = 0; i < call->count && status == TESSERA_OK; i++) {
        tessera_launch *l = &call->launches[i];
        tessera_work w;
        void *workspace = NULL;
        w.launch = l;
        w.counter = 0;
        w.failed = 0;
        w.total = l->groups[0] * l->groups[1] * l->groups[2];
        w.chunk = options && options->parallel ? tessera_min(tessera_max(w.total / 64, 1), 4096) : w.total;
        if (l->kept_bytes && kept == NULL && (kept = (char *)malloc((size_t)l->kept_bytes + 64)) == NULL)
            status = TESSERA_NO_MEMORY;
        for (j = 0; j < l->kept_count && kept; j++)
            l->slots[l->kept[j].slot] = (int64_t)(uintptr_t)tessera_aligned(kept) + l->kept[j].offset;
        for (j = 0; j < l->zero_count && status == TESSERA_OK; j++)
            memset((void *)(uintptr_t)l->slots[l->zeros[j].slot], 0, (size_t)l->zeros[j].offset);
        if (l->workspace_slot >= 0) {
            workspace = calloc((size_t)l->workspace_bytes + 64, 1);
            if (workspace == NULL)
                status = TESSERA_NO_MEMORY;
            else
                l->slots[l->workspace_slot] = (int64_t)(uintptr_t)tessera_aligned(workspace);
        }
        if (l->fault_slot >= 0)
            l->slots[l->fault_slot] = (int64_t)(uintptr_t)fault;
        if (l->print_slot >= 0) {
            if (options == NULL || options->print == NULL)
                status = TESSERA_REFUSED;
            else
                l->slots[l->print_slot] = (int64_t)(uintptr_t)options->print;
        }
        if (status == TESSERA_OK && w.total > 0) {
            if (options && options->parallel)
                options->parallel(options->context, tessera_work_of_a_thread, &w);
            else
                tessera_work_of_a_thread(&w);
            if (w.failed)
                status = TESSERA_NO_MEMORY;
            else if (fault[0])
                status = TESSERA_FAULTED;
        }
        free(workspace);
    }
    free(kept);
    if (options && options->fault)
        memcpy(options->fault, fault, sizeof fault);
    return status;
}

/* --- what a processor has ----------------------------------------------------------------------- */

/* A bit of cpuid, and the registers (bits of XCR0) that the system must save for it to count. */
typedef struct tessera_feature {
    const char *name;
    uint32_t leaf, subleaf;
    int reg, bit;
    uint32_t saved;
} tessera_feature;

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
static inline uint32_t tessera_cpuid(uint32_t leaf, uint32_t subleaf, int reg)
{
    uint32_t r[4];
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(subleaf));
    return r[reg];
}

static inline int tessera_cpu_has(const tessera_feature *f)
{
    uint32_t low = 0, high = 0;
    if (tessera_cpuid(f->leaf & 0x80000000u, 0, 0) < f->leaf)
        return 0;
    if (f->subleaf && tessera_cpuid(f->leaf, 0, 0) < f->subleaf)
        return 0;
    if (f->saved) {
        if (!(tessera_cpuid(1, 0, 2) >> 27 & 1))
            return 0;
        __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
        (void)high;
    }
    return (tessera_cpuid(f->leaf, f->subleaf, f->reg) >> f->bit & 1) && (low & f->saved) == f->saved;
}
#else
static inline int tessera_cpu_has(const tessera_feature *f)
{
    (void)f; /* this processor is not asked */
    return 1;
}
#endif

/* The first feature that the processor lacks, or NULL. `known` keeps the answer: 0 at first. */
static inline const char *tessera_cpu_lacks(const tessera_feature *needs, int count, int *known)
{
    int i;
    if (*known == 0) {
        for (i = 0; i < count && tessera_cpu_has(&needs[i]); i++)
            ;
        *known = i + 1;
    }
    return *known <= count ? needs[*known - 1].name : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
