// A driver without a device, for tests: the functions that the loader asks for, in the order of their calls and with
// their refusals. Device memory is the host's. What it pretends is chosen when it is compiled:
//
//   VERSION      what it is for                       INIT         what cuInit answers
//   DEVICES      how many there are                   CAPABILITY   theirs, 10 * major + minor
//   MEMORY       bytes that a device has              FAIL_ALLOCATION, FAIL_HOST, FAIL_LAUNCH, FAIL_WAIT
//                                                                  number of the call that fails, counted from 1
//   BEGIN_CAPTURE, END_CAPTURE, INSTANTIATE, REPLAY                what the functions of graphs answer, without doing it
//
// A function is left out by giving it another name: -DcuGraphLaunch=left_out.
//
// A kernel adds the number of its threads to the u64 at the address that its argument begins with. With EMULATED, an image
// is the path of a library of the emulator's (`cuda-emulator/kernels/emulated.h`), and a kernel does what it does.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 12040
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef CAPABILITY
#define CAPABILITY 90
#endif
#ifndef MEMORY
#define MEMORY (1ul << 30)
#endif
#ifndef FAIL_ALLOCATION
#define FAIL_ALLOCATION 0
#endif
#ifndef FAIL_HOST
#define FAIL_HOST 0
#endif
#ifndef FAIL_LAUNCH
#define FAIL_LAUNCH 0
#endif
#ifndef FAIL_WAIT
#define FAIL_WAIT 0
#endif

#ifndef BEGIN_CAPTURE
#define BEGIN_CAPTURE 0
#endif
#ifndef END_CAPTURE
#define END_CAPTURE 0
#endif
#ifndef INSTANTIATE
#define INSTANTIATE 0
#endif
#ifndef REPLAY
#define REPLAY 0
#endif

#ifdef EMULATED
#define SHARED (163 << 10)
#else
#define SHARED (100 << 10)
#endif

typedef unsigned long long u64;

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
       NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900 };
enum { MOST = 4096 };

// Twins of the emulator's structures.
struct emulated_kernel { void (*function)(const void *); const char *argument; unsigned bytes, most_threads; };
struct emulated_launch { unsigned grid[3], threads, shared, backward; };

struct module { void *library, *stage; char text[]; };
struct function { struct module *module; void *kernel; };
struct launch { struct function function; struct emulated_launch geometry; u64 argument[64]; };
struct graph { int count; struct launch launches[1024]; };
struct block { void *memory; size_t bytes; };

// What tests look at: objects that were not given back, and those given back when their context was gone.
int fake_objects = 0;
int fake_violations = 0;
// Names of the kernels that were launched, each ending with a newline.
char fake_launched[65536];

static int retained, context, broken, allocations, host_allocations, launches, waits;
static _Thread_local void *current;
static struct block blocks[MOST];
static size_t used;
static struct graph *recorded;
static struct function functions[MOST];
static int known_functions;

static int enter(void) {
    if (current != &context || !retained) return INVALID_CONTEXT;
    return broken;
}

static int make(void **object, size_t bytes) {
    int code = enter();
    if (code) return code;
    *object = calloc(1, bytes);
    fake_objects++;
    return 0;
}

static int destroy(void *object) {
    if (current != &context || !retained) {
        fake_violations++;
        return INVALID_CONTEXT;
    }
    free(object);
    fake_objects--;
    return broken;
}

int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return flags ? INVALID_VALUE : INIT; }

int cuGetErrorName(int code, const char **text) {
    switch (code) {
    case OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case INVALID_IMAGE: *text = "CUDA_ERROR_INVALID_IMAGE"; return 0;
    case ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    case LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; return 0;
    case 801: *text = "CUDA_ERROR_NOT_SUPPORTED"; return 0;
    case 803: *text = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    default: *text = NULL; return INVALID_VALUE;
    }
}

int cuGetErrorString(int code, const char **text) {
    switch (code) {
    case OUT_OF_MEMORY: *text = "out of memory"; return 0;
    case INVALID_IMAGE: *text = "device kernel image is invalid"; return 0;
    case ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; return 0;
    case LAUNCH_FAILED: *text = "unspecified launch failure"; return 0;
    case 801: *text = "operation not supported"; return 0;
    case 803: *text = "system has unsupported display driver / cuda driver combination"; return 0;
    default: *text = NULL; return INVALID_VALUE;
    }
}

int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }
int cuDeviceGet(int *device, int number) {
    if (number < 0 || number >= DEVICES) return INVALID_DEVICE;
    *device = number;
    return 0;
}
int cuDeviceGetName(char *name, int room, int device) {
    (void)device;
    strncpy(name, "NVIDIA Pretence", room);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *value = 4; return 0;
    case 75: *value = CAPABILITY / 10; return 0;
    case 76: *value = CAPABILITY % 10; return 0;
    case 97: *value = SHARED; return 0;
    default: return INVALID_VALUE;
    }
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = MEMORY; return 0; }

int cuDevicePrimaryCtxRetain(void **handle, int device) {
    (void)device;
    retained++;
    fake_objects++;
    *handle = &context;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (!retained) return INVALID_CONTEXT;
    retained--;
    fake_objects--;
    return 0;
}
int cuCtxSetCurrent(void *handle) { current = handle; return 0; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    int code = enter();
    *free_bytes = MEMORY - used;
    *total = MEMORY;
    return code;
}
int cuMemAlloc_v2(u64 *address, size_t bytes) {
    int code = enter();
    if (code) return code;
    if (recorded) return CAPTURE_UNSUPPORTED;
    if (bytes == 0) return INVALID_VALUE;
    if (++allocations == FAIL_ALLOCATION || bytes > MEMORY - used) return OUT_OF_MEMORY;
    for (int at = 0; at < MOST; at++) {
        if (blocks[at].memory) continue;
        blocks[at].memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
        blocks[at].bytes = bytes;
        used += bytes;
        fake_objects++;
        *address = (u64)blocks[at].memory;
        return 0;
    }
    return OUT_OF_MEMORY;
}
int cuMemFree_v2(u64 address) {
    for (int at = 0; at < MOST; at++) {
        if (!address || (u64)blocks[at].memory != address) continue;
        used -= blocks[at].bytes;
        blocks[at].memory = NULL;
        return destroy((void *)address);
    }
    return INVALID_VALUE;
}

// Whether memory of the device holds these bytes.
static int holds(u64 address, size_t bytes) {
    for (int at = 0; at < MOST; at++) {
        u64 first = (u64)blocks[at].memory;
        if (first && address >= first && address + bytes <= first + blocks[at].bytes) return 1;
    }
    return 0;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    if (flags) return INVALID_VALUE;
    if (++host_allocations == FAIL_HOST) return OUT_OF_MEMORY;
    return make(memory, bytes);
}
int cuMemFreeHost(void *memory) { return destroy(memory); }

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *stream) {
    int code = enter();
    if (code) return code;
    if (!stream || !holds(to, bytes)) return INVALID_VALUE;
    memcpy((void *)to, from, bytes);
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *stream) {
    int code = enter();
    if (code) return code;
    if (!stream || !holds(from, bytes)) return INVALID_VALUE;
    memcpy(to, (void *)from, bytes);
    return 0;
}
int cuMemsetD8Async(u64 at, unsigned char value, size_t bytes, void *stream) {
    int code = enter();
    if (code) return code;
    if (!stream || !holds(at, bytes)) return INVALID_VALUE;
    memset((void *)at, value, bytes);
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) { return flags > 1 ? INVALID_VALUE : make(stream, 1); }
int cuStreamSynchronize(void *stream) {
    int code = enter();
    if (code) return code;
    if (!stream) return INVALID_VALUE;
    if (recorded) return CAPTURE_UNSUPPORTED;
    if (++waits == FAIL_WAIT) broken = ILLEGAL_ADDRESS;
    return broken;
}
int cuStreamDestroy_v2(void *stream) { return destroy(stream); }

int cuStreamBeginCapture_v2(void *stream, int mode) {
    int code = enter();
    if (code) return code;
    if (!stream || mode != 1 || recorded) return INVALID_VALUE;
    if (BEGIN_CAPTURE) return BEGIN_CAPTURE;
    return make((void **)&recorded, sizeof(struct graph));
}
int cuStreamEndCapture(void *stream, void **graph) {
    int code = enter();
    if (code) return code;
    if (!stream || !recorded) return INVALID_VALUE;
    *graph = recorded;
    recorded = NULL;
    if (!END_CAPTURE) return 0;
    // A recording that went wrong ends all the same, and nothing is left of it.
    destroy(*graph);
    *graph = NULL;
    return END_CAPTURE;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, u64 flags) {
    if (flags) return INVALID_VALUE;
    if (INSTANTIATE) return INSTANTIATE;
    int code = make(executable, sizeof(struct graph));
    if (!code) memcpy(*executable, graph, sizeof(struct graph));
    return code;
}
static int run(const struct launch *launch) {
    if (++launches == FAIL_LAUNCH) return broken = LAUNCH_FAILED;
#ifdef EMULATED
    const char *(*go)(void *, const void *, const void *, const void *) = dlsym(launch->function.module->library, "demask_run");
    const char *wrong = go(launch->function.module->stage, launch->function.kernel, &launch->geometry, launch->argument);
    if (wrong) fprintf(stderr, "%s\n", wrong);
    return wrong ? broken = LAUNCH_FAILED : 0;
#else
    if (!holds(launch->argument[0], sizeof(u64))) return broken = ILLEGAL_ADDRESS;
    const unsigned *grid = launch->geometry.grid;
    *(u64 *)launch->argument[0] += (u64)grid[0] * grid[1] * grid[2] * launch->geometry.threads;
    return 0;
#endif
}
int cuGraphLaunch(void *executable, void *stream) {
    int code = enter();
    if (code) return code;
    if (!stream) return INVALID_VALUE;
    if (REPLAY) return REPLAY;
    struct graph *graph = executable;
    for (int at = 0; at < graph->count && !code; at++) code = run(&graph->launches[at]);
    return code;
}
int cuGraphExecDestroy(void *executable) { return destroy(executable); }
int cuGraphDestroy(void *graph) { return destroy(graph); }

int cuEventCreate(void **event, unsigned flags) { return flags ? INVALID_VALUE : make(event, 1); }
int cuEventRecord(void *event, void *stream) { return event && stream ? enter() : INVALID_VALUE; }
int cuEventSynchronize(void *event) { return event ? enter() : INVALID_VALUE; }
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    if (!begin || !end || begin == end) return INVALID_VALUE;
    *milliseconds = 250;
    return enter();
}
int cuEventDestroy_v2(void *event) { return destroy(event); }

// An image is "pretence:" and a text; what the text names with a following parenthesis is a kernel. With EMULATED the text
// is a path.
int cuModuleLoadData(void **handle, const void *image) {
    if (strncmp(image, "pretence:", 9)) return INVALID_IMAGE;
    int code = make(handle, sizeof(struct module) + strlen(image) + 1);
    if (code) return code;
    struct module *module = *handle;
    strcpy(module->text, image);
#ifdef EMULATED
    module->library = dlopen(module->text + 9, RTLD_NOW | RTLD_LOCAL);
    if (!module->library) return INVALID_IMAGE;
    module->stage = ((void *(*)(void))dlsym(module->library, "demask_open"))();
#endif
    return 0;
}
int cuModuleUnload(void *handle) {
#ifdef EMULATED
    struct module *module = handle;
    ((void (*)(void *))dlsym(module->library, "demask_close"))(module->stage);
    dlclose(module->library);
#endif
    return destroy(handle);
}
static void *find(struct module *module, const char *name) {
#ifdef EMULATED
    return dlsym(module->library, name);
#else
    for (char *at = module->text; (at = strstr(at, name)); at++)
        if (at[strlen(name)] == '(' && at[-1] == ' ') return at;
    return NULL;
#endif
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    int code = enter();
    if (code) return code;
    void *kernel = find(module, name);
    if (!kernel || known_functions == MOST) return NOT_FOUND;
    functions[known_functions] = (struct function){module, kernel};
    *function = &functions[known_functions++];
    return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = 1 << 10;
    return function && attribute == 1 ? enter() : INVALID_VALUE;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    return function && attribute == 8 && value == SHARED - (1 << 10) ? enter() : INVALID_VALUE;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
    int code = enter();
    if (code) return code;
    u64 threads = (u64)grid_x * grid_y * grid_z * block_x * block_y * block_z;
    if (!function || !threads || shared > SHARED - (1 << 10) || !stream || extra) return INVALID_VALUE;
    struct launch launch = {*(struct function *)function, {{grid_x, grid_y, grid_z}, block_x, shared, 0}, {0}};
#ifdef EMULATED
    struct emulated_kernel *kernel = launch.function.kernel;
    if (kernel->bytes > sizeof launch.argument || block_x > kernel->most_threads) return INVALID_VALUE;
    memcpy(launch.argument, arguments[0], kernel->bytes);
#else
    char *name = launch.function.kernel;
    launch.argument[0] = *(u64 *)arguments[0];
#endif
    if (recorded) {
        if (recorded->count == 1024) return OUT_OF_MEMORY;
        recorded->launches[recorded->count++] = launch;
        return 0;
    }
#ifndef EMULATED
    size_t length = strchr(name, '(') - name;
    if (strlen(fake_launched) + length + 2 < sizeof fake_launched) strcat(strncat(fake_launched, name, length), "\n");
#endif
    return run(&launch);
}
