/* Launches of `tesserac build` through the CUDA driver. Needs no header of CUDA: the functions of
 * libcuda are found by name in the program that runs. The caller makes a context current. */
#ifndef TESSERA_CUDA_H
#define TESSERA_CUDA_H
#include <stdio.h>

#include "tessera.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA_MEMCPY2D and CUlaunchConfig of the driver. */
typedef struct tessera_cuda_copy {
    size_t source_x, source_y;
    unsigned source_kind;
    const void *source_host;
    uint64_t source;
    void *source_array;
    size_t source_pitch, target_x, target_y;
    unsigned target_kind;
    void *target_host;
    uint64_t target;
    void *target_array;
    size_t target_pitch, width, height;
} tessera_cuda_copy;

typedef struct tessera_cuda_attribute {
    int identity, padding;
    unsigned x, y, z, rest[13];
} tessera_cuda_attribute;

typedef struct tessera_cuda_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    tessera_cuda_attribute *attributes;
    unsigned attribute_count;
} tessera_cuda_config;

/* The functions of libcuda that are called; all give a status, 0 where it went well. */
typedef struct tessera_driver {
    int (*module_load)(void **, const void *);
    int (*module_unload)(void *);
    int (*get_function)(void **, void *, const char *);
    int (*set_attribute)(void *, int, int);
    int (*blocks_at_once)(int *, void *, int, size_t);
    int (*clusters_at_once)(int *, void *, const tessera_cuda_config *);
    int (*current_device)(int *);
    int (*device_attribute)(int *, int, int);
    int (*allocate)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*fill)(uint64_t, unsigned char, size_t, void *);
    int (*copy_lines)(const tessera_cuda_copy *, void *);
    int (*copy_to_host)(void *, uint64_t, size_t);
    int (*wait)(void *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                  const uint32_t *, const uint32_t *, int, int, int, int);
} tessera_driver;

typedef void (*tessera_function)(void);

/* Fills the table by `find(library, name)`, as dlsym does it; the name that is not there, or NULL.
 * cuOccupancyMaxActiveClusters and cuTensorMapEncodeTiled may be missing in a driver before 11.8
 * and 12.0: kernels that need them are refused. */
static inline const char *tessera_driver_find(tessera_driver *driver, void *library,
                                              void *(*find)(void *, const char *))
{
    static const char *const names[] = {
        "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveClusters",
        "cuCtxGetDevice", "cuDeviceGetAttribute", "cuMemAlloc_v2", "cuMemFree_v2",
        "cuMemsetD8Async", "cuMemcpy2DAsync_v2", "cuMemcpyDtoH_v2", "cuStreamSynchronize",
        "cuLaunchKernel", "cuTensorMapEncodeTiled",
    };
    tessera_function found[sizeof names / sizeof *names];
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        void *address = find(library, names[i]);
        if (address == NULL && i != 5 && i != 15)
            return names[i];
        memcpy(&found[i], &address, sizeof address);
    }
    memcpy(driver, found, sizeof found);
    return NULL;
}

enum { TESSERA_WORKSPACE, TESSERA_SCRATCH, TESSERA_KEPT, TESSERA_COPIES, TESSERA_RECORD, TESSERA_PRINTS, TESSERA_SPARE, TESSERA_SPACES };

/* Code of a variant on a device, with the memory that its launches need. For one stream at a time. */
typedef struct tessera_cuda_kernel {
    int count;
    void **modules;
    void **functions;
    unsigned *resident; /* groups that run at once, of a kernel that walks over tiles */
    void *reorder_modules[4], *reorder_functions[4]; /* copies of elements of 1, 2, 4 and 8 bytes */
    uint64_t memory[TESSERA_SPACES];
    size_t sizes[TESSERA_SPACES];
    int status; /* of the driver, where something gave TESSERA_DRIVER */
} tessera_cuda_kernel;

static inline int tessera_cuda_said(tessera_cuda_kernel *kernel, int status)
{
    kernel->status = status;
    return status ? TESSERA_DRIVER : TESSERA_OK;
}

/* 10 * major + minor of the current device, as `..._accepts` and `..._prepare` take it; -1 where
 * there is none. */
static inline int tessera_cuda_capability(const tessera_driver *driver)
{
    int device, major, minor;
    if (driver->current_device(&device) || driver->device_attribute(&major, 75, device)
        || driver->device_attribute(&minor, 76, device))
        return -1;
    return 10 * major + minor;
}

/* A file as memory that ends with a zero byte, or NULL. */
static inline char *tessera_read(const char *folder, const char *name)
{
    size_t length = strlen(folder) + strlen(name) + 2;
    char *path = (char *)malloc(length), *content = NULL;
    FILE *file = NULL;
    long size = -1;
    if (path != NULL) {
        snprintf(path, length, "%s/%s", folder, name);
        file = fopen(path, "rb");
        free(path);
    }
    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0)
        content = (char *)malloc((size_t)size + 1);
    if (content != NULL) {
        content[size] = 0;
        if (fread(content, 1, (size_t)size, file) != (size_t)size) {
            free(content);
            content = NULL;
        }
    }
    fclose(file);
    return content;
}

static inline void tessera_cuda_unload(const tessera_driver *driver, tessera_cuda_kernel *kernel)
{
    int i;
    for (i = 0; i < kernel->count; i++)
        if (kernel->modules[i] != NULL)
            driver->module_unload(kernel->modules[i]);
    for (i = 0; i < 4; i++)
        if (kernel->reorder_modules[i] != NULL)
            driver->module_unload(kernel->reorder_modules[i]);
    for (i = 0; i < TESSERA_SPACES; i++)
        if (kernel->memory[i])
            driver->release(kernel->memory[i]);
    free(kernel->modules);
    free(kernel->functions);
    free(kernel->resident);
    memset(kernel, 0, sizeof *kernel);
}

/* How many groups of a launch run at once. */
static inline int tessera_cuda_resident(const tessera_driver *driver, const tessera_launch *l,
                                        void *function, unsigned *resident)
{
    int found = 0, device = 0, units = 0, status;
    unsigned cluster = l->cluster[0] * l->cluster[1] * l->cluster[2];
    if (cluster > 1) {
        tessera_cuda_config config;
        tessera_cuda_attribute attribute;
        memset(&config, 0, sizeof config);
        memset(&attribute, 0, sizeof attribute);
        attribute.identity = 4; /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
        attribute.x = cluster;
        attribute.y = attribute.z = 1;
        config.grid[0] = cluster;
        config.grid[1] = config.grid[2] = 1;
        memcpy(config.block, l->block, sizeof config.block);
        config.shared_bytes = l->shared_bytes;
        config.attributes = &attribute;
        config.attribute_count = 1;
        if (driver->clusters_at_once == NULL)
            return 801; /* not supported */
        status = driver->clusters_at_once(&found, function, &config);
        *resident = (found > 1 ? (unsigned)found : 1) * cluster;
        return status;
    }
    status = driver->blocks_at_once(&found, function, (int)(l->block[0] * l->block[1] * l->block[2]),
                                    l->shared_bytes);
    if (status == 0)
        status = driver->current_device(&device);
    if (status == 0)
        status = driver->device_attribute(&units, 16, device); /* multiprocessors */
    *resident = (found > 1 ? (unsigned)found : 1) * (unsigned)units;
    return status;
}

static inline int tessera_cuda_size_number(int64_t bytes)
{
    return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
}

/* Loads what makes the copies of a launch whose lines run along another axis. */
static inline int tessera_cuda_load_reorder(const tessera_driver *driver, const char *folder,
                                            const tessera_launch *l, tessera_cuda_kernel *kernel,
                                            int *status)
{
    int i;
    for (i = 0; i < l->copy_count && *status == 0; i++) {
        int64_t bytes = tessera_element_bytes(l->copies[i].source->dtype);
        int number = tessera_cuda_size_number(bytes);
        char name[40], *code;
        if (l->copies[i].alignment >= 128 || kernel->reorder_modules[number] != NULL)
            continue;
        snprintf(name, sizeof name, "tessera_reorder_%d.ptx", (int)bytes);
        code = tessera_read(folder, name);
        if (code == NULL)
            return TESSERA_NO_FILE;
        *status = driver->module_load(&kernel->reorder_modules[number], code);
        free(code);
        if (*status == 0)
            *status = driver->get_function(&kernel->reorder_functions[number],
                                           kernel->reorder_modules[number], "reorder");
    }
    return TESSERA_OK;
}

/* Loads the code of a prepared call from the folder of its header. `kernel` may hold anything
 * before; tessera_cuda_unload takes it back, also where this fails. */
static inline int tessera_cuda_load(const tessera_driver *driver, const char *folder,
                                    const tessera_call *call, tessera_cuda_kernel *kernel)
{
    int i, status = 0;
    size_t count = (size_t)call->count;
    memset(kernel, 0, sizeof *kernel);
    kernel->modules = (void **)calloc(count, sizeof(void *));
    kernel->functions = (void **)calloc(count, sizeof(void *));
    kernel->resident = (unsigned *)calloc(count, sizeof(unsigned));
    if (kernel->modules == NULL || kernel->functions == NULL || kernel->resident == NULL)
        return TESSERA_NO_MEMORY;
    kernel->count = call->count;
    for (i = 0; i < call->count && status == 0; i++) {
        const tessera_launch *l = &call->launches[i];
        char *code = tessera_read(folder, l->file);
        if (code == NULL)
            return TESSERA_NO_FILE;
        status = driver->module_load(&kernel->modules[i], code);
        free(code);
        if (status == 0)
            status = driver->get_function(&kernel->functions[i], kernel->modules[i], l->entry);
        if (status == 0 && l->shared_bytes)
            status = driver->set_attribute(kernel->functions[i], 8, (int)l->shared_bytes);
        if (status == 0 && l->persistent)
            status = tessera_cuda_resident(driver, l, kernel->functions[i], &kernel->resident[i]);
        if (status == 0 && tessera_cuda_load_reorder(driver, folder, l, kernel, &status) != TESSERA_OK)
            return TESSERA_NO_FILE;
    }
    return tessera_cuda_said(kernel, status);
}

/* Memory of a kernel for one use; new memory is zeros where `zeroed`. */
static inline int tessera_cuda_room(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                    int use, int64_t bytes, int zeroed, void *stream, int64_t *address)
{
    size_t size = bytes > 256 ? (size_t)bytes : 256;
    int status = 0;
    if (kernel->sizes[use] < size) {
        if (kernel->memory[use]) {
            status = driver->wait(stream);
            if (status == 0)
                status = driver->release(kernel->memory[use]);
            kernel->memory[use] = 0;
            kernel->sizes[use] = 0;
        }
        if (status == 0)
            status = driver->allocate(&kernel->memory[use], size);
        if (status == 0)
            kernel->sizes[use] = size;
        if (status == 0 && zeroed)
            status = driver->fill(kernel->memory[use], 0, size, stream);
    }
    *address = (int64_t)kernel->memory[use];
    return status;
}

enum { TESSERA_REORDER_LINE = 32, TESSERA_REORDER_RUN = 64, TESSERA_REORDER_OUTER = 4 };

/* Makes a copy whose lines are none of the array: rectangles of a line and of the axis along which
 * its elements lie nearest to each other. */
static inline int tessera_cuda_reorder(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                       const tessera_copy *copy, int64_t address, void *stream,
                                       int *status)
{
    const tessera_array *a = copy->source;
    int64_t element = tessera_element_bytes(a->dtype), step = copy->pitch, groups;
    int64_t n[TESSERA_AXES], from[TESSERA_AXES], to[TESSERA_AXES];
    int last = a->rank - 1, count = 0, run = 0, i, at;
    uint64_t values[9 + 3 * TESSERA_REORDER_OUTER];
    void *arguments[9 + 3 * TESSERA_REORDER_OUTER];
    void *function = kernel->reorder_functions[tessera_cuda_size_number(element)];
    if (function == NULL)
        return TESSERA_NO_COPY;
    for (i = last - 1; i >= 0; i--) {
        int64_t size = a->shape[copy->axes[i]], stride = tessera_stride(a, copy->axes[i]) * element;
        if (size > 1 && count && stride == n[count - 1] * from[count - 1]
            && step == n[count - 1] * to[count - 1]) {
            n[count - 1] *= size;
        } else if (size > 1) {
            n[count] = size;
            from[count] = stride;
            to[count++] = step;
        }
        step *= size;
    }
    if (count == 0) {
        n[0] = 1;
        from[0] = to[0] = 0;
        count = 1;
    }
    for (i = 1; i < count; i++) {
        int64_t here = from[i] < 0 ? -from[i] : from[i], best = from[run] < 0 ? -from[run] : from[run];
        if (here < best)
            run = i;
    }
    if (count - 1 > TESSERA_REORDER_OUTER)
        return TESSERA_NO_COPY;
    values[0] = (uint64_t)address;
    values[1] = (uint64_t)(uintptr_t)a->data;
    values[2] = (uint64_t)a->shape[copy->axes[last]];
    values[3] = (uint64_t)n[run];
    values[4] = (uint64_t)(tessera_stride(a, copy->axes[last]) * element);
    values[5] = (uint64_t)from[run];
    values[6] = (uint64_t)to[run];
    values[7] = (values[2] + TESSERA_REORDER_LINE - 1) / TESSERA_REORDER_LINE;
    values[8] = (values[3] + TESSERA_REORDER_RUN - 1) / TESSERA_REORDER_RUN;
    groups = (int64_t)(values[7] * values[8]);
    for (i = 0, at = 9; i < count; i++)
        if (i != run) {
            values[at++] = (uint64_t)n[i];
            values[at++] = (uint64_t)from[i];
            values[at++] = (uint64_t)to[i];
            groups *= n[i];
        }
    for (; at < 9 + 3 * TESSERA_REORDER_OUTER; at += 3) {
        values[at] = 1;
        values[at + 1] = values[at + 2] = 0;
    }
    for (i = 0; i < 9 + 3 * TESSERA_REORDER_OUTER; i++)
        arguments[i] = &values[i];
    *status = driver->launch(function, (unsigned)groups, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
    return *status ? TESSERA_DRIVER : TESSERA_OK;
}

/* Makes a copy: lines of neighbours, one or many at a time. */
static inline int tessera_cuda_make(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                    const tessera_copy *copy, int64_t address, void *stream,
                                    int *status)
{
    const tessera_array *a = copy->source;
    int64_t element = tessera_element_bytes(a->dtype), at[TESSERA_AXES], lines = 1, step = 0;
    int last = a->rank - 1, outer = last > 0 ? last - 1 : 0, i;
    int64_t width = a->shape[copy->axes[last]] * element, target = address;
    memset(at, 0, sizeof at);
    if (tessera_is_empty(a))
        return TESSERA_OK;
    if (!tessera_is_unit(a, copy->axes[last]))
        return tessera_cuda_reorder(driver, kernel, copy, address, stream, status);
    if (last > 0) {
        step = tessera_stride(a, copy->axes[outer]) * element;
        lines = step >= width ? a->shape[copy->axes[outer]] : 1;
    }
    outer = lines > 1 ? outer : last; /* the axes in front of `outer` are walked over here */
    for (;;) {
        tessera_cuda_copy c;
        int64_t from = 0;
        for (i = 0; i < outer; i++)
            from += at[i] * tessera_stride(a, copy->axes[i]) * element;
        memset(&c, 0, sizeof c);
        c.source_kind = c.target_kind = 2; /* memory of the device */
        c.source = (uint64_t)(uintptr_t)a->data + (uint64_t)from;
        c.source_pitch = (size_t)(lines > 1 ? step : width);
        c.target = (uint64_t)target;
        c.target_pitch = (size_t)copy->pitch;
        c.width = (size_t)width;
        c.height = (size_t)lines;
        *status = driver->copy_lines(&c, stream);
        if (*status)
            return TESSERA_DRIVER;
        target += copy->pitch * lines;
        for (i = outer - 1; i >= 0 && ++at[i] == a->shape[copy->axes[i]]; i--)
            at[i] = 0;
        if (i < 0)
            return TESSERA_OK;
    }
}

/* The argument of each slot: its word, or the bytes that go by value. */
static inline int tessera_cuda_arguments(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                         tessera_launch *l, void **arguments, char *maps, void *stream)
{
    int i, status;
    for (i = 0; i < l->slot_count; i++)
        arguments[i] = &l->slots[i];
    for (i = 0; i < l->value_count; i++)
        arguments[l->values[i]] = (void *)(uintptr_t)l->slots[l->values[i]];
    for (i = 0; i < l->map_count; i++) {
        tessera_map *m = &l->maps[i];
        int64_t address = l->slots[m->slot];
        if (driver->encode == NULL)
            return 801;
        status = address ? 0 : tessera_cuda_room(driver, kernel, TESSERA_SPARE, 256, 1, stream, &address);
        if (status == 0)
            status = driver->encode(maps + 128 * i, m->data_type, m->rank, (void *)(uintptr_t)address,
                                    m->sizes, m->strides, m->box, m->steps, m->interleave, m->swizzle,
                                    m->promotion, m->fill);
        if (status)
            return status;
        arguments[m->slot] = maps + 128 * i;
    }
    return 0;
}

/* What a launch needs beside arrays: memory, copies and zeros, in order on the stream. */
static inline int tessera_cuda_ready(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                     tessera_launch *l, void *stream, int *status)
{
    static const int uses[] = {TESSERA_WORKSPACE, TESSERA_SCRATCH, TESSERA_RECORD, TESSERA_PRINTS};
    int slots[4], i, result;
    int64_t bytes[4], base = 0;
    slots[0] = l->workspace_slot;
    slots[1] = l->scratch_slot;
    slots[2] = l->fault_slot;
    slots[3] = l->print_slot;
    bytes[0] = l->workspace_bytes;
    bytes[1] = l->scratch_bytes;
    bytes[2] = 8 * TESSERA_FAULT_WORDS;
    bytes[3] = 8 * TESSERA_PRINT_WORDS;
    *status = 0;
    for (i = 0; i < 4 && *status == 0; i++)
        if (slots[i] >= 0)
            *status = tessera_cuda_room(driver, kernel, uses[i], bytes[i], uses[i] != TESSERA_SCRATCH,
                                        stream, &l->slots[slots[i]]);
    if (*status == 0 && l->kept_bytes)
        *status = tessera_cuda_room(driver, kernel, TESSERA_KEPT, l->kept_bytes, 0, stream, &base);
    for (i = 0; i < l->kept_count; i++)
        l->slots[l->kept[i].slot] = base + l->kept[i].offset;
    if (*status == 0 && l->copy_count)
        *status = tessera_cuda_room(driver, kernel, TESSERA_COPIES, l->copy_bytes, 0, stream, &base);
    for (i = 0; i < l->copy_count && *status == 0; i++) {
        int64_t address = base + l->copies[i].offset;
        int j;
        result = tessera_cuda_make(driver, kernel, &l->copies[i], address, stream, status);
        if (result != TESSERA_OK)
            return result;
        if (l->copies[i].slot >= 0)
            l->slots[l->copies[i].slot] = address;
        for (j = 0; j < l->map_count; j++)
            if (l->maps[j].copy == i)
                l->slots[l->maps[j].slot] = address;
    }
    for (i = 0; i < l->zero_count && *status == 0; i++)
        if (l->zeros[i].offset)
            *status = driver->fill((uint64_t)l->slots[l->zeros[i].slot], 0, (size_t)l->zeros[i].offset, stream);
    return *status ? TESSERA_DRIVER : TESSERA_OK;
}

/* Starts a prepared call on a stream; returns before it has run. */
static inline int tessera_cuda_launch(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                      tessera_call *call, void *stream)
{
    int i, result = TESSERA_OK;
    if (kernel->count != call->count)
        return TESSERA_REFUSED;
    for (i = 0; i < call->count && result == TESSERA_OK; i++) {
        tessera_launch *l = &call->launches[i];
        unsigned x = l->grid[0];
        void **arguments;
        char *maps, *aligned;
        int status = 0;
        result = tessera_cuda_ready(driver, kernel, l, stream, &status);
        kernel->status = status;
        if (result != TESSERA_OK || x == 0 || l->grid[1] == 0 || l->grid[2] == 0)
            continue;
        if (l->persistent && kernel->resident[i] < x)
            x = kernel->resident[i];
        arguments = (void **)malloc(sizeof(void *) * (size_t)(l->slot_count + 1));
        maps = (char *)malloc((size_t)l->map_count * 128 + 64);
        if (arguments != NULL && maps != NULL) {
            aligned = (char *)tessera_aligned(maps);
            status = tessera_cuda_arguments(driver, kernel, l, arguments, aligned, stream);
            if (status == 0)
                status = driver->launch(kernel->functions[i], x, l->grid[1], l->grid[2], l->block[0],
                                        l->block[1], l->block[2], l->shared_bytes, stream, arguments,
                                        NULL);
            result = tessera_cuda_said(kernel, status);
        } else {
            result = TESSERA_NO_MEMORY;
        }
        free(arguments);
        free(maps);
    }
    return result;
}

/* Waits for a stream and looks for a fault: TESSERA_FAULTED with its record in `fault` (8 words, or
 * NULL). `print`: TESSERA_PRINT_WORDS words for what lanes printed, or NULL. Both are empty then. */
static inline int tessera_cuda_finish(const tessera_driver *driver, tessera_cuda_kernel *kernel,
                                      void *stream, uint64_t *fault, uint64_t *print)
{
    uint64_t words[TESSERA_FAULT_WORDS];
    int status = driver->wait(stream);
    memset(words, 0, sizeof words);
    if (status == 0 && kernel->memory[TESSERA_RECORD])
        status = driver->copy_to_host(words, kernel->memory[TESSERA_RECORD], sizeof words);
    if (status == 0 && words[0])
        status = driver->fill(kernel->memory[TESSERA_RECORD], 0, sizeof words, stream);
    if (status == 0 && print && kernel->memory[TESSERA_PRINTS]) {
        status = driver->copy_to_host(print, kernel->memory[TESSERA_PRINTS], 8 * TESSERA_PRINT_WORDS);
        if (status == 0)
            status = driver->fill(kernel->memory[TESSERA_PRINTS], 0, 8 * TESSERA_PRINT_WORDS, stream);
    }
    if (fault)
        memcpy(fault, words, sizeof words);
    if (status)
        return tessera_cuda_said(kernel, status);
    return words[0] ? TESSERA_FAULTED : TESSERA_OK;
}

#ifdef __cplusplus
}
#endif
#endif
