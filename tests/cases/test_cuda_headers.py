"""A program of C that knows CUDA kernels by their headers alone: it finds libcuda when it runs."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tessera_lang.driver.cli import run

KERNELS = """\
@op.kernel
def product(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:
    return A @ B

@op.kernel
def half(P: bf16[m, k], Q: bf16[k, n]) -> f32[m, n]:
    return P @ Q

@op.kernel
def soft(y: f32[n, m]) -> (f32[n, m], f32[m]):
    s = op.sum(y, axis=0)
    return y / s[None, :], s

@op.kernel
def taps(W: f32[co, ci, k], X: f32[ci, n]) -> f32[co, n - k + 1]:
    out = op.empty((co, n - k + 1), f32)
    for m, q in op.tile_range(co, n - k + 1, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for s in range(k):
            for c in op.tile_range(ci, step=32):
                acc += W[m:m+64, c:c+32, s] @ X[c:c+32, q+s:min(q+64, n-k+1)+s]
        out[m:m+64, q:q+64] = acc
    return out

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def gather(x: f32[n], at: i32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[at[i]]

@kernel tile[(32,)]
def show(v: i32[n]):
    i = grid_tile_linear_id()
    if i < n and v[i] > 2:
        print("v", v[i])
"""
SIGNATURES = (
    "A: f32[m, k], B: f32[k, n]", "A: f32[128, 128], B: f32[128, 128]",
    "P: bf16[m, k], Q: bf16[k, n]", "P: bf16[512, 512], Q: bf16[512, 512]",
    "P: bf16[4096, 64], Q: bf16[64, 4096]", "y: f32[4096, 256]", "x: f32[n], at: i32[n]",
    "v: i32[n]", "W: f32[128, 64, 5], X: f32[64, 4100]",
)  # fmt: skip

PROGRAM = r"""
#include <dlfcn.h>
#include <math.h>
#include "tessera_product.h"
#include "tessera_half.h"
#include "tessera_soft.h"
#include "tessera_taps.h"
#include "tessera_gather.h"
#include "tessera_show.h"

static tessera_driver driver;
static const char *folder;
static int failed, capability;
static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t);
static int (*to_device)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t);

static void expect(int holds, const char *what)
{ if (!holds) { printf("FAILED %s\n", what); failed = 1; } }
static void *symbol(void *library, const char *name) { return dlsym(library, name); }
static void find(void *library, const char *name, void *function)
{ void *address = dlsym(library, name); memcpy(function, &address, sizeof address); }

static uint64_t upload(const void *data, size_t size)
{
    uint64_t address = 0;
    expect(allocate(&address, size ? size : 1) == 0, "memory");
    if (data) expect(to_device(address, data, size) == 0, "copy");
    return address;
}
static tessera_array of(int32_t dtype, uint64_t address, int32_t rank, const int64_t *shape)
{ return tessera_of(dtype, (void *)(uintptr_t)address, rank, shape, NULL); }
/* Loads, runs twice and waits: what a launch leaves must not disturb the next. */
static int run(tessera_call *call, uint64_t *fault, uint64_t *print)
{
    tessera_cuda_kernel kernel;
    int status = tessera_cuda_load(&driver, folder, call, &kernel), i;
    for (i = 0; i < 2 && status == TESSERA_OK; i++) {
        status = tessera_cuda_launch(&driver, &kernel, call, NULL);
        if (status == TESSERA_OK)
            status = tessera_cuda_finish(&driver, &kernel, NULL, fault, print);
    }
    if (status == TESSERA_DRIVER) printf("the driver said %d\n", kernel.status);
    tessera_cuda_unload(&driver, &kernel);
    return status;
}
static float number(int64_t i) { return (float)(i % 7) - 3; }
static uint16_t narrow(float x) { uint32_t b; memcpy(&b, &x, 4); return (uint16_t)(b >> 16); }

static void multiply(int bf16, int64_t m, int64_t k, int64_t n, int wanted)
{
    int64_t sa[2], sb[2], sc[2], i, j, l;
    size_t size = bf16 ? 2 : 4;
    char *a = (char *)malloc((size_t)(m * k) * 4), *b = (char *)malloc((size_t)(k * n) * 4);
    float *c = (float *)malloc((size_t)(m * n) * 4);
    uint64_t pa, pb, pc;
    tessera_array A, B, C;
    int wrong = 0, status, taken;
    sa[0] = m; sa[1] = k; sb[0] = k; sb[1] = n; sc[0] = m; sc[1] = n;
    for (i = 0; i < m * k || i < k * n; i++) {
        float x = number(i), y = number(i / 3);
        if (bf16) {
            if (i < m * k) ((uint16_t *)a)[i] = narrow(x);
            if (i < k * n) ((uint16_t *)b)[i] = narrow(y);
        } else {
            if (i < m * k) ((float *)a)[i] = x;
            if (i < k * n) ((float *)b)[i] = y;
        }
    }
    pa = upload(a, (size_t)(m * k) * size);
    pb = upload(b, (size_t)(k * n) * size);
    pc = upload(NULL, (size_t)(m * n) * 4);
    A = of(bf16 ? TESSERA_BF16 : TESSERA_F32, pa, 2, sa);
    B = of(bf16 ? TESSERA_BF16 : TESSERA_F32, pb, 2, sb);
    C = of(TESSERA_F32, pc, 2, sc);
    if (bf16) {
        tessera_half_call call;
        taken = tessera_half_accepts(capability, &A, &B, &C);
        status = tessera_half_prepare(capability, &A, &B, &C, &call);
        if (status == TESSERA_OK) status = run(&call.all, NULL, NULL);
    } else {
        tessera_product_call call;
        taken = tessera_product_accepts(capability, &A, &B, &C);
        status = tessera_product_prepare(capability, &A, &B, &C, &call);
        if (status == TESSERA_OK) status = run(&call.all, NULL, NULL);
    }
    printf("%d x %d x %d: variant %d, status %d\n", (int)m, (int)k, (int)n, taken, status);
    expect(taken > 0 && status == TESSERA_OK, "product");
    expect((taken > 2) == wanted, "the special variant where it may be taken");
    expect(to_host(c, pc, (size_t)(m * n) * 4) == 0, "result");
    for (i = 0; i < m; i += 1 + m / 61) for (j = 0; j < n; j += 1 + n / 53) {
        float want = 0;
        for (l = 0; l < k; l++) want += number(i * k + l) * number((l * n + j) / 3);
        wrong += want != c[i * n + j];
    }
    expect(!wrong, "elements of a product");
    free(a); free(b); free(c);
    release(pa); release(pb); release(pc);
}

static void convolve(void)
{
    static float w[128 * 64 * 5], x[64 * 4100], y[128 * 4096];
    int64_t sw[3] = {128, 64, 5}, sx[2] = {64, 4100}, sy[2] = {128, 4096}, i, j, c, s;
    uint64_t pw, px, py;
    tessera_array W, X, Y;
    tessera_taps_call taps;
    int wrong = 0;
    for (i = 0; i < 128 * 64 * 5; i++) w[i] = number(i);
    for (i = 0; i < 64 * 4100; i++) x[i] = number(i / 3);
    pw = upload(w, sizeof w); px = upload(x, sizeof x); py = upload(NULL, sizeof y);
    W = of(TESSERA_F32, pw, 3, sw); X = of(TESSERA_F32, px, 2, sx); Y = of(TESSERA_F32, py, 2, sy);
    expect(tessera_taps_prepare(capability, &W, &X, &Y, &taps) == TESSERA_OK, "prepare taps");
    expect(taps.all.launches[taps.all.count - 1].copy_count > 0, "a copy");
    expect(run(&taps.all, NULL, NULL) == TESSERA_OK, "taps");
    to_host(y, py, sizeof y);
    for (i = 0; i < 128; i += 7) for (j = 0; j < 4096; j += 61) {
        float want = 0;
        for (c = 0; c < 64; c++) for (s = 0; s < 5; s++)
            want += w[(i * 64 + c) * 5 + s] * x[c * 4100 + j + s];
        wrong += want != y[i * 4096 + j];
    }
    expect(!wrong, "values of taps");
    release(pw); release(px); release(py);
}

static void rest(void)
{
    static float x[4096 * 256], y[4096 * 256], s[256];
    static int32_t at[1000];
    static uint64_t words[TESSERA_PRINT_WORDS];
    int64_t shape[2], columns[1], one[1], groups[1], i;
    uint64_t px, py, ps, pi, fault[TESSERA_FAULT_WORDS];
    tessera_array X, Y, S, I;
    tessera_soft_call soft;
    tessera_gather_call gather;
    tessera_show_call show;
    int wrong = 0;
    shape[0] = 4096; shape[1] = 256; columns[0] = 256; one[0] = 1000; groups[0] = 32;
    for (i = 0; i < 4096 * 256; i++) x[i] = (float)(i % 5 + 1);
    for (i = 0; i < 1000; i++) at[i] = (int32_t)(999 - i);
    px = upload(x, sizeof x); py = upload(NULL, sizeof y); ps = upload(NULL, sizeof s);
    X = of(TESSERA_F32, px, 2, shape); Y = of(TESSERA_F32, py, 2, shape);
    S = of(TESSERA_F32, ps, 1, columns);
    expect(tessera_soft_prepare(capability, &X, &Y, &S, &soft) == TESSERA_OK, "prepare soft");
    printf("soft: %d launches\n", soft.all.count);
    expect(run(&soft.all, NULL, NULL) == TESSERA_OK, "soft");
    to_host(y, py, sizeof y); to_host(s, ps, sizeof s);
    for (i = 0; i < 256; i++) {
        double sum = 0;
        int64_t j;
        for (j = 0; j < 4096; j++) sum += x[j * 256 + i];
        wrong += fabs(s[i] - sum) > 1e-3 * sum || fabs(y[i] - x[i] / sum) > 1e-6;
    }
    expect(!wrong, "values of soft");

    pi = upload(at, sizeof at);
    X = of(TESSERA_F32, px, 1, one); I = of(TESSERA_I32, pi, 1, one);
    Y = of(TESSERA_F32, py, 1, one);
    expect(tessera_gather_prepare(capability, &X, &I, &Y, &gather) == TESSERA_OK, "prepare gather");
    expect(run(&gather.all, fault, NULL) == TESSERA_OK && !fault[0], "gather");
    to_host(y, py, 4000);
    expect(y[0] == x[999] && y[999] == x[0], "values of gather");
    at[70] = 5000;
    to_device(pi, at, sizeof at);
    expect(run(&gather.all, fault, NULL) == TESSERA_FAULTED, "a fault");
    expect(fault[2] == 5000 && fault[3] == 1000 && fault[4] == 1 && fault[5] == 6, "its record");
    one[0] = 999;
    expect(!tessera_gather_accepts(capability, &X, &I, &Y) || one[0] == I.shape[0], "sizes");
    X = of(TESSERA_F32, py, 1, one);
    expect(!tessera_gather_accepts(capability, &X, &I, &Y), "shared memory");
    expect(!tessera_gather_accepts(70, &X, &I, &Y), "an older device");

    at[0] = 7; at[1] = 1; at[2] = 0; at[3] = 3;
    to_device(pi, at, sizeof at);
    one[0] = 4;
    I = of(TESSERA_I32, pi, 1, one);
    expect(tessera_show_prepare(capability, &I, groups, &show) == TESSERA_OK, "prepare show");
    expect(run(&show.all, NULL, words) == TESSERA_OK && words[0] == 8, "prints");
    expect(words[2] == 1 && words[5] + words[9] == 10, "what is printed");
    release(px); release(py); release(ps); release(pi);
}

int main(int count, char **arguments)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
    int device = 0;
    if (library == NULL || count < 2) { puts("no driver"); return 2; }
    folder = arguments[1];
    if (tessera_driver_find(&driver, library, symbol) != NULL) { puts("an old driver"); return 2; }
    find(library, "cuInit", &init); find(library, "cuDeviceGet", &get);
    find(library, "cuDevicePrimaryCtxRetain", &retain); find(library, "cuCtxSetCurrent", &current);
    find(library, "cuMemAlloc_v2", &allocate); find(library, "cuMemFree_v2", &release);
    find(library, "cuMemcpyHtoD_v2", &to_device); find(library, "cuMemcpyDtoH_v2", &to_host);
    if (init(0) || get(&device, 0) || retain(&context, device) || current(context)) return 2;
    capability = tessera_cuda_capability(&driver);
    multiply(0, 90, 99, 70, 0); multiply(0, 128, 128, 128, 1); multiply(0, 1, 1, 1, 0);
    multiply(1, 300, 200, 100, 0); multiply(1, 512, 512, 512, 1); multiply(1, 4096, 64, 4096, 1);
    convolve();
    rest();
    puts(failed ? "failed" : "all right");
    return failed;
}
"""


PRETENDED = r"""
#include "tessera_product.h"
#include "tessera_soft.h"
#include "tessera_taps.h"
#include "tessera_gather.h"
/* A driver whose device memory is the host's, and whose launches look at what they are given. */
static int failed, allocated, loaded, launched, copied, reordered;
static float weights[128 * 64 * 5], image[64 * 4100], out[128 * 4096];
static uint64_t record;
static float a[90 * 99], b[99 * 70], c[90 * 70], x[4096 * 256], y[4096 * 256], s[256];
static int32_t at[1000];
static void expect(int holds, const char *what)
{ if (!holds) { printf("FAILED %s\n", what); failed = 1; } }
static int module_load(void **m, const void *code) { *m = &loaded; loaded++; return code == NULL; }
static int module_unload(void *m) { loaded--; return m == NULL; }
static int get_function(void **f, void *m, const char *name)
{ *f = (void *)(uintptr_t)name; return m == NULL; }
static int set_attribute(void *f, int attribute, int value)
{ expect(attribute == 8 && value > 48 * 1024, "dynamic shared memory"); return f == NULL; }
static int blocks(int *n, void *f, int lanes, size_t bytes)
{ (void)lanes; (void)bytes; *n = 2; return f == NULL; }
static int clusters(int *n, void *f, const tessera_cuda_config *config)
{ *n = 3; return f == NULL || config->attribute_count != 1; }
static int current(int *device) { *device = 0; return 0; }
static int attribute(int *value, int what, int device)
{ *value = what == 16 ? 5 : what == 75 ? 8 : 0; return device; }
static int allocate(uint64_t *address, size_t size)
{
    *address = (uint64_t)(uintptr_t)malloc(size);
    memset((void *)(uintptr_t)*address, 0x55, size); /* what is not zeroed is seen */
    allocated++;
    return 0;
}
static int release(uint64_t address) { free((void *)(uintptr_t)address); allocated--; return 0; }
static int fill(uint64_t address, unsigned char value, size_t size, void *stream)
{ (void)stream; memset((void *)(uintptr_t)address, value, size); return 0; }
static int copy_lines(const tessera_cuda_copy *l, void *stream)
{
    size_t i;
    (void)stream;
    for (i = 0; i < l->height; i++)
        memcpy((char *)(uintptr_t)l->target + i * l->target_pitch,
               (const char *)(uintptr_t)l->source + i * l->source_pitch, l->width);
    return 0;
}
static int copy_to_host(void *to, uint64_t from, size_t size)
{ memcpy(to, (const void *)(uintptr_t)from, size); return 0; }
static int wait_for(void *stream) { return stream != NULL; }
static void *slot(void **arguments, int number)
{ return (void *)(uintptr_t)*(uint64_t *)arguments[number]; }
/* What the kernel does with its arguments. */
static void reorder(unsigned groups, void **arguments)
{
    int64_t v[21], i, j, k, g;
    for (i = 0; i < 21; i++) v[i] = *(int64_t *)arguments[i];
    for (g = 0; g < (int64_t)groups; g++) {
        int64_t rest = g / v[7] / v[8], to = v[0], from = v[1];
        for (k = 9; k < 21; k += 3) {
            to += rest % v[k] * v[k + 2];
            from += rest % v[k] * v[k + 1];
            rest /= v[k];
        }
        for (i = g % v[7] * 32; i < g % v[7] * 32 + 32 && i < v[2]; i++)
            for (j = g / v[7] % v[8] * 64; j < g / v[7] % v[8] * 64 + 64 && j < v[3]; j++)
                memcpy((char *)(uintptr_t)(to + j * v[6] + i * 4),
                       (char *)(uintptr_t)(from + i * v[4] + j * v[5]), 4);
    }
}
static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned bytes, void *stream, void **arguments, void **extra)
{
    const char *name = (const char *)f;
    (void)bytes; (void)stream; (void)extra;
    expect(gx && gy && gz && bx >= 32 && by && bz, "a shape");
    launched++;
    if (strcmp(name, "reorder") == 0) {
        reorder(gx, arguments);
        return 0;
    }
    if (strcmp(name, "tessera_taps") == 0) {
        const float *lines = (const float *)slot(arguments, TESSERA_TAPS_1_DATA_W_COPY);
        int i, wrong = 0;
        for (i = 0; i < 128 * 64 * 5; i++)
            wrong += lines[(i / 320 * 5 + i % 5) * 64 + i / 5 % 64] != weights[i];
        reordered = !wrong;
    }
    if (strcmp(name, "tessera_product") == 0) {
        const char *lines = (const char *)slot(arguments, TESSERA_PRODUCT_1_DATA_A_COPY);
        int64_t i;
        copied = 1;
        for (i = 0; i < 90; i++)
            copied = copied && memcmp(lines + i * 512, a + i * 99, 99 * sizeof *a) == 0;
    }
    if (strcmp(name, "tessera_gather") == 0) {
        uint64_t *words = (uint64_t *)slot(arguments, (int)record);
        expect(words[0] == 0 && words[7] == 0, "a record that is zero");
        words[0] = 1;
        words[2] = 5000;
    }
    return 0;
}

int main(int count, char **arguments)
{
    int64_t sa[] = {90, 99}, sb[] = {99, 70}, sc[] = {90, 70}, sx[] = {4096, 256}, ss[] = {256};
    int64_t sn[] = {1000};
    uint64_t fault[TESSERA_FAULT_WORDS];
    tessera_array A = tessera_of(TESSERA_F32, a, 2, sa, NULL);
    tessera_array B = tessera_of(TESSERA_F32, b, 2, sb, NULL);
    tessera_array C = tessera_of(TESSERA_F32, c, 2, sc, NULL);
    tessera_array X = tessera_of(TESSERA_F32, x, 2, sx, NULL);
    tessera_array Y = tessera_of(TESSERA_F32, y, 2, sx, NULL);
    tessera_array S = tessera_of(TESSERA_F32, s, 1, ss, NULL);
    tessera_array N = tessera_of(TESSERA_F32, x, 1, sn, NULL);
    tessera_array T = tessera_of(TESSERA_I32, at, 1, sn, NULL);
    tessera_array O = tessera_of(TESSERA_F32, y, 1, sn, NULL);
    tessera_driver driver = {module_load, module_unload, get_function, set_attribute, blocks,
                             clusters, current, attribute, allocate, release, fill, copy_lines,
                             copy_to_host, wait_for, launch, NULL};
    tessera_cuda_kernel kernel;
    tessera_product_call product;
    tessera_soft_call soft;
    tessera_gather_call gather;
    int i, capability = tessera_cuda_capability(&driver), before;
    for (i = 0; i < 90 * 99; i++) a[i] = (float)i;
    if (count < 2) return 1;
    expect(capability == 80, "capability");
    expect(tessera_product_prepare(capability, &A, &B, &C, &product) == TESSERA_OK, "prepare");
    expect(tessera_cuda_load(&driver, arguments[1], &product.all, &kernel) == TESSERA_OK, "load");
    for (i = 0; i < 3; i++)
        expect(tessera_cuda_launch(&driver, &kernel, &product.all, NULL) == TESSERA_OK, "launch");
    expect(copied || !product.all.launches[0].copy_count, "lines of a copy");
    printf("copies %d\n", product.all.launches[0].copy_count);
    tessera_cuda_unload(&driver, &kernel);
    expect(allocated == 0 && loaded == 0, "all is given back");

    {
        int64_t sw[] = {128, 64, 5}, si[] = {64, 4100}, so[] = {128, 4096};
        tessera_array W = tessera_of(TESSERA_F32, weights, 3, sw, NULL);
        tessera_array I = tessera_of(TESSERA_F32, image, 2, si, NULL);
        tessera_array R = tessera_of(TESSERA_F32, out, 2, so, NULL);
        tessera_taps_call taps;
        for (i = 0; i < 128 * 64 * 5; i++) weights[i] = (float)i;
        expect(tessera_taps_prepare(capability, &W, &I, &R, &taps) == TESSERA_OK, "prepare taps");
        expect(tessera_cuda_load(&driver, arguments[1], &taps.all, &kernel) == TESSERA_OK, "load");
        for (i = 0; i < 2; i++)
            expect(tessera_cuda_launch(&driver, &kernel, &taps.all, NULL) == TESSERA_OK, "taps");
        expect(reordered, "axes in another order");
        kernel.reorder_functions[2] = NULL;
        i = tessera_cuda_launch(&driver, &kernel, &taps.all, NULL);
        expect(i == TESSERA_NO_COPY, "a kernel that copies is not there");
        tessera_cuda_unload(&driver, &kernel);
        expect(allocated == 0 && loaded == 0, "all is given back of taps");
    }

    expect(tessera_soft_prepare(capability, &X, &Y, &S, &soft) == TESSERA_OK, "prepare soft");
    expect(tessera_cuda_load(&driver, arguments[1], &soft.all, &kernel) == TESSERA_OK, "load soft");
    before = launched;
    expect(tessera_cuda_launch(&driver, &kernel, &soft.all, NULL) == TESSERA_OK, "launch soft");
    expect(launched - before == soft.all.count, "all launches of a call");
    expect(tessera_cuda_launch(&driver, &kernel, &product.all, NULL) == TESSERA_REFUSED
           || soft.all.count == product.all.count, "a call of another kernel");
    tessera_cuda_unload(&driver, &kernel);
    expect(allocated == 0 && loaded == 0, "all is given back again");

    expect(tessera_gather_prepare(capability, &N, &T, &O, &gather) == TESSERA_OK, "prepare gather");
    record = (uint64_t)gather.all.launches[0].fault_slot;
    expect(tessera_cuda_load(&driver, arguments[1], &gather.all, &kernel) == TESSERA_OK, "load");
    for (i = 0; i < 2; i++) {
        expect(tessera_cuda_launch(&driver, &kernel, &gather.all, NULL) == TESSERA_OK, "launch");
        memset(fault, 0, sizeof fault);
        expect(tessera_cuda_finish(&driver, &kernel, NULL, fault, NULL) == TESSERA_FAULTED, "f");
        expect(fault[0] == 1 && fault[2] == 5000, "its record");
    }
    tessera_cuda_unload(&driver, &kernel);
    expect(tessera_cuda_load(&driver, "nowhere", &gather.all, &kernel) == TESSERA_NO_FILE, "file");
    tessera_cuda_unload(&driver, &kernel);
    expect(allocated == 0 && loaded == 0, "all is given back at the end");
    puts(failed ? "failed" : "all right");
    return failed;
}
"""


def built(home: Path) -> Path:
    (home / "k.tessera").write_text(KERNELS)
    said = io.StringIO()
    options = [f"--signature={s}" for s in SIGNATURES]
    archs = ("--arch=sm_80", "--arch=sm_90")
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = run(["build", str(home / "k.tessera"), "-o", str(home / "out"), "--target=cuda",
                    *archs, *options])  # fmt: skip
    assert code == 0, said.getvalue()
    return home / "out"


def program(
    home: Path, folder: Path, language: str = "c", text: str = PROGRAM, level: str = "-O1"
) -> Path:
    name, standard = {"c": ("gcc", "-std=c99"), "c++": ("g++", "-std=c++11")}[language]
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    (home / "use.c").write_text(text)
    command = [
        found, standard, "-Wall", "-Wextra", "-Werror", level, f"-I{folder}", "-x", language,
        str(home / "use.c"), "-ldl", "-lm", "-o", str(home / "use"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return home / "use"


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.slow
def test_the_headers_are_enough_to_compile(library: Path, tmp_path: Path, language: str) -> None:
    """No header of CUDA, no library of it, no warning."""
    program(tmp_path, library, language)
    text = "".join(p.read_text() for p in library.glob("*.h"))
    assert set(re.findall("#include (.*)", text)) == {
        '"tessera.h"', '"tessera_cuda.h"', "<stdint.h>", "<stdio.h>", "<stdlib.h>", "<string.h>",
    }  # fmt: skip
    expected = (
        "bytes of dynamic shared memory", "swizzle of 128 bytes", "interleave 0", "promotion",
        "fill 0", "A record of a fault", "What lanes print", "threads a block",
    )  # fmt: skip
    for words in expected:
        assert words in text, words
    assert re.search(r"\d\. reads outside of `x\[at\[i\]\]`.*\(k\.tessera:\d+:\d+\)", text)
    assert r'"v {i32}\012"' in text


def test_launches_with_a_driver_that_pretends(library: Path, tmp_path: Path) -> None:
    """What is asked of a driver: memory, copies, records, and what is given back."""
    made = program(tmp_path, library, text=PRETENDED, level="-O0")
    done = subprocess.run([str(made), str(library)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "copies 2\nall right\n", done.stdout + done.stderr


@pytest.mark.gpu
def test_a_program_built_from_the_headers_runs(library: Path, tmp_path: Path) -> None:
    """Copies, tensor maps, clusters, several launches, faults and prints: see ``PROGRAM``."""
    done = subprocess.run(
        [str(program(tmp_path, library)), str(library)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("all right\n"), done.stdout + done.stderr
