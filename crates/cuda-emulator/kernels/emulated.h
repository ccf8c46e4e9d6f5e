// The primitives of `kernels/prelude.cuh` in plain C++, and the stage on which a kernel's threads run on the processor.
//
// Each thread of a block is a fiber. A warp's lanes run one after the other until each waits: at an operation of the
// whole warp (a shuffle, a matrix product), which is then done for all lanes at once, or at a barrier of the block,
// where the next warp's turn comes. Lanes of a warp that wait at different things, or a thread that has left while
// others wait, are divergence: an error that names block, warp and lanes.
//
// Forward, threads run in ascending order and asynchronous copies happen as late as they may; backward, in descending
// order, and copies happen at once. A result that differs between the two lacks a barrier or a wait. Shared memory
// holds the bytes of `POISON` until it is written: numbers that are none.
//
// A GPU traps where an access of 2, 4, 8 or 16 bytes lies at an address that is not a multiple of as many; a processor
// does not mind. The compiler therefore checks every access (`-fsanitize=alignment`) and calls what stands here in
// place of the sanitizer's own library; what it does not see, copies and matrices, is checked where it is done.
#define DEMASK_EMULATED 1
#define DEVICE inline
// The library hides all names but these: what is the same in two libraries would else be shared by them.
#define VISIBLE __attribute__((visibility("default")))
#define OFFSET(type, field) __builtin_offsetof(type, field)
#define UNROLL
#define ROLLED

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
// Own fibers where their few lines of assembly are understood; elsewhere, and where a test asks for them, the system's.
#if defined(__x86_64__) && defined(__ELF__) && !defined(DEMASK_SYSTEM_FIBERS)
#define DEMASK_OWN_FIBERS 1
#else
#include <ucontext.h>
#endif

#include <vector>

namespace emulated {

constexpr int POISON = 0xff;
// Bytes of a fiber's stack; its last words are looked at after each launch.
constexpr size_t STACK = 256 << 10;
constexpr u64 CANARY = 0x5eed0fca11ab1e00;
// Bytes of poison behind shared memory.
constexpr size_t ZONE = 1024;

// A place in the middle of some execution, to go back to.
#ifdef DEMASK_OWN_FIBERS
struct Context {
    void* stack_pointer;
};

// Keeps the registers that a call must keep on the stack, and goes on where another stack ends.
extern "C" void demask_switch(void** keep, void* resume);
asm(".text\n"
    ".hidden demask_switch\n"
    ".globl demask_switch\n"
    ".type demask_switch, @function\n"
    "demask_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size demask_switch, .-demask_switch\n");

static void prepare(Context& context, u8* stack, void (*entry)()) {
    // As if `entry` had been called from nowhere: its address where `ret` looks, below it six registers.
    void** top = reinterpret_cast<void**>(stack + STACK);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(entry);
    for (int place = 3; place <= 8; ++place) top[-place] = nullptr;
    context.stack_pointer = top - 8;
}

static inline void change(Context& from, Context& to) { demask_switch(&from.stack_pointer, to.stack_pointer); }
#else
struct Context {
    ucontext_t context;
};

static void prepare(Context& context, u8* stack, void (*entry)()) {
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = STACK;
    context.context.uc_link = nullptr;
    makecontext(&context.context, entry, 0);
}

static inline void change(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
#endif

// What a thread waits at.
struct Operation {
    const char* name;
    // Does it for the operands of all lanes; nothing for the barrier of the block.
    void (*run)(void** operands);
};

// A copy that has been asked for.
struct Copy {
    void* to;
    const void* from;
    u32 bytes;
    u32 group;
};

struct Thread {
    Context context;
    // What it waits at: null if it runs or has left.
    const Operation* operation;
    void* operands;
    bool left;
    // Groups of copies ended so far.
    u32 groups;
    std::vector<Copy> copies;
};

// A shared array of the block, by the declaration that it belongs to.
struct Array {
    const void* key;
    size_t bytes;
    u8* memory;
};

struct Kernel {
    void (*function)(const void*);
    const char* arguments;
    u32 bytes;
    u32 most_threads;
};

struct Launch {
    u32 grid[3];
    u32 threads;
    u32 shared;
    u32 backward;
};

// All that a launch needs; kept from one to the next.
struct Stage {
    Context scheduler;
    Kernel kernel;
    Launch launch;
    const void* arguments;
    u32 block[3];
    u32 running;
    std::vector<Thread> threads;
    u8* stacks;
    size_t stacks_bytes;
    u8* shared;
    size_t shared_bytes;
    std::vector<Array> arrays;
    // Matrices loaded so far whose rows did not lie in all banks.
    u64 conflicts;
    char message[400];
};

static thread_local Stage* stage __attribute__((tls_model("initial-exec")));

static const Operation BARRIER = {"sync_block", nullptr};

static void fail(const char* what) {
    if (stage->message[0] != 0) return;
    snprintf(stage->message, sizeof stage->message, "block %u, %u, %u: %s", stage->block[0], stage->block[1],
             stage->block[2], what);
}

// Ends the running thread where it is: what it was about to do would end the program. Nothing while an operation is done
// for a whole warp, which no thread runs.
static void end_thread() {
    Thread& thread = stage->threads[stage->running];
    if (thread.operation != nullptr || thread.left) return;
    thread.left = true;
    change(thread.context, stage->scheduler);
}

// Whether the address is a multiple of the size; if not, the launch has failed, and the thread ends.
static bool aligned(const char* what, const void* address, u32 bytes) {
    if (reinterpret_cast<u64>(address) % bytes == 0) return true;
    char message[240];
    snprintf(message, sizeof message, "thread %u: %s of %u bytes at 0x%llx, which is not a multiple of %u", stage->running,
             what, bytes, static_cast<unsigned long long>(reinterpret_cast<u64>(address)), bytes);
    fail(message);
    end_thread();
    return false;
}

// What the compiler tells of an access: of a type that wants an alignment, at a place of the text.
struct CheckedAccess {
    struct {
        const char* file;
        u32 line, column;
    } place;
    const void* type;
    u8 log_alignment;
};

// Called by the compiler's checks for an access that is not aligned.
extern "C" __attribute__((used)) void __ubsan_handle_type_mismatch_v1(const CheckedAccess* access, u64 address) {
    aligned("an access", reinterpret_cast<const void*>(address), 1u << access->log_alignment);
}

// Where each fiber begins.
static void begin() {
    stage->kernel.function(stage->arguments);
    Thread& thread = stage->threads[stage->running];
    thread.left = true;
    change(thread.context, stage->scheduler);
    abort();
}

// Waits until `operation` has been done for all lanes.
static inline void wait(const Operation& operation, void* operands) {
    Thread& thread = stage->threads[stage->running];
    thread.operation = &operation;
    thread.operands = operands;
    change(thread.context, stage->scheduler);
}

// Runs a warp until all its lanes have left or wait at the barrier of the block. Whether that came to pass.
static bool run_warp(u32 warp) {
    Thread* lanes = &stage->threads[warp * 32];
    for (;;) {
        for (u32 turn = 0; turn < 32; ++turn) {
            u32 lane = stage->launch.backward ? 31 - turn : turn;
            if (lanes[lane].left || lanes[lane].operation != nullptr) continue;
            stage->running = warp * 32 + lane;
            change(stage->scheduler, lanes[lane].context);
        }
        const Operation* operation = lanes[0].operation;
        for (u32 lane = 1; lane < 32; ++lane) {
            if (lanes[lane].operation == operation && lanes[lane].left == lanes[0].left) continue;
            char what[160];
            snprintf(what, sizeof what, "warp %u diverges: lane 0 %s%s, lane %u %s%s", warp,
                     operation ? "waits at " : "has left", operation ? operation->name : "", lane,
                     lanes[lane].operation ? "waits at " : "has left",
                     lanes[lane].operation ? lanes[lane].operation->name : "");
            fail(what);
            return false;
        }
        if (operation == nullptr || operation == &BARRIER) return true;
        void* operands[32];
        for (u32 lane = 0; lane < 32; ++lane) operands[lane] = lanes[lane].operands;
        operation->run(operands);
        for (u32 lane = 0; lane < 32; ++lane) lanes[lane].operation = nullptr;
    }
}

static void run_block() {
    u32 warps = stage->launch.threads / 32;
    for (u32 index = 0; index < stage->launch.threads; ++index) {
        Thread& thread = stage->threads[index];
        prepare(thread.context, stage->stacks + index * STACK, begin);
        thread.operation = nullptr;
        thread.left = false;
        thread.groups = 0;
        thread.copies.clear();
    }
    memset(stage->shared, POISON, stage->launch.shared);
    for (Array& array : stage->arrays) memset(array.memory, POISON, array.bytes);
    for (;;) {
        for (u32 turn = 0; turn < warps; ++turn) {
            if (!run_warp(stage->launch.backward ? warps - 1 - turn : turn)) return;
        }
        bool left = stage->threads[0].left;
        for (u32 warp = 1; warp < warps; ++warp) {
            if (stage->threads[warp * 32].left == left) continue;
            char what[120];
            snprintf(what, sizeof what, "the block diverges: warp %u has left, warp %u waits at sync_block",
                     left ? 0 : warp, left ? warp : 0);
            return fail(what);
        }
        if (left) return;
        for (u32 index = 0; index < stage->launch.threads; ++index) stage->threads[index].operation = nullptr;
    }
}

// Memory behind which nothing may be written.
static void check_zone(const u8* end, const char* what) {
    for (size_t place = 0; place < ZONE; ++place) {
        if (end[place] != POISON) return fail(what);
    }
}

static u8* new_zone(size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, bytes + ZONE) != 0) abort();
    memset(memory, POISON, bytes + ZONE);
    return static_cast<u8*>(memory);
}

static void make_room(const Launch& launch) {
    if (stage->stacks_bytes < launch.threads * STACK) {
        if (stage->stacks != nullptr) munmap(stage->stacks, stage->stacks_bytes);
        stage->stacks_bytes = launch.threads * STACK;
        void* memory = mmap(nullptr, stage->stacks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) abort();
        stage->stacks = static_cast<u8*>(memory);
    }
    for (u32 index = 0; index < launch.threads; ++index) memcpy(stage->stacks + index * STACK, &CANARY, 8);
    if (stage->threads.size() < launch.threads) stage->threads.resize(launch.threads);
    if (stage->shared == nullptr || stage->shared_bytes != launch.shared) {
        free(stage->shared);
        stage->shared_bytes = launch.shared;
        stage->shared = new_zone(launch.shared);
    }
}

static void check_room() {
    check_zone(stage->shared + stage->shared_bytes, "something wrote beyond the dynamic shared memory");
    for (Array& array : stage->arrays) {
        check_zone(array.memory + array.bytes, "something wrote beyond an array in shared memory");
        free(array.memory);
    }
    stage->arrays.clear();
    for (u32 index = 0; index < stage->launch.threads; ++index) {
        if (memcmp(stage->stacks + index * STACK, &CANARY, 8) != 0) fail("the stack of a thread is too small");
    }
}

static void* shared_array(const void* key, size_t bytes) {
    for (Array& array : stage->arrays) {
        if (array.key == key) return array.memory;
    }
    stage->arrays.push_back({key, bytes, new_zone(bytes)});
    return stage->arrays.back().memory;
}

extern "C" VISIBLE Stage* demask_open() { return new Stage(); }

extern "C" VISIBLE void demask_close(Stage* closed) {
    if (closed->stacks != nullptr) munmap(closed->stacks, closed->stacks_bytes);
    free(closed->shared);
    delete closed;
}

extern "C" VISIBLE u64 demask_conflicts(const Stage* of) { return of->conflicts; }

// Runs a kernel. The message of what went wrong, or null.
extern "C" VISIBLE const char* demask_run(Stage* on, const Kernel* kernel, const Launch* launch,
                                          const void* arguments) {
    stage = on;
    stage->kernel = *kernel;
    stage->launch = *launch;
    stage->arguments = arguments;
    stage->message[0] = 0;
    make_room(*launch);
    u64 blocks = static_cast<u64>(launch->grid[0]) * launch->grid[1] * launch->grid[2];
    for (u64 turn = 0; turn < blocks && stage->message[0] == 0; ++turn) {
        u64 block = launch->backward ? blocks - 1 - turn : turn;
        stage->block[0] = block % launch->grid[0];
        stage->block[1] = block / launch->grid[0] % launch->grid[1];
        stage->block[2] = block / launch->grid[0] / launch->grid[1];
        run_block();
    }
    check_room();
    return stage->message[0] != 0 ? stage->message : nullptr;
}

template <typename T>
struct Shuffle {
    T value;
    u32 source;
    T result;
};

template <typename T>
static void run_shuffle(void** operands) {
    for (u32 lane = 0; lane < 32; ++lane) {
        Shuffle<T>* own = static_cast<Shuffle<T>*>(operands[lane]);
        own->result = static_cast<Shuffle<T>*>(operands[own->source % 32])->value;
    }
}

template <typename T>
static inline T shuffle(T value, u32 source) {
    static const Operation operation = {"shuffle", run_shuffle<T>};
    Shuffle<T> operands = {value, source, value};
    wait(operation, &operands);
    return operands.result;
}

static void run_nothing(void**) {}

static void run_ballot(void** operands) {
    u32 bits = 0;
    for (u32 lane = 0; lane < 32; ++lane) bits |= *static_cast<u32*>(operands[lane]) << lane;
    for (u32 lane = 0; lane < 32; ++lane) *static_cast<u32*>(operands[lane]) = bits;
}

struct Matrices {
    u32* to;
    const void* row;
};

// Eight rows of 16 bytes are read in one go if each lies in banks of its own: 128 bytes, again and again.
static void count_conflicts(void** operands) {
    for (u32 matrix = 0; matrix < 4; ++matrix) {
        u32 banks = 0;
        for (u32 row = 0; row < 8; ++row) {
            banks |= 1u << reinterpret_cast<u64>(static_cast<Matrices*>(operands[matrix * 8 + row])->row) / 16 % 8;
        }
        stage->conflicts += banks != 0xff;
    }
}

template <bool transposed>
static void run_load(void** operands) {
    count_conflicts(operands);
    for (u32 lane = 0; lane < 32; ++lane) {
        for (u32 matrix = 0; matrix < 4; ++matrix) {
            u32 halves[2];
            for (u32 half = 0; half < 2; ++half) {
                u32 row = transposed ? lane % 4 * 2 + half : lane / 4;
                u32 place = transposed ? lane / 4 : lane % 4 * 2 + half;
                const void* from = static_cast<Matrices*>(operands[matrix * 8 + row])->row;
                halves[half] = static_cast<const u16*>(from)[place];
            }
            static_cast<Matrices*>(operands[lane])->to[matrix] = halves[0] | halves[1] << 16;
        }
    }
}

struct Product {
    float* sum;
    const u32* a;
    u32 b[2];
};

static inline float number(u32 word, u32 half) {
    u32 bits = half ? word & 0xffff0000u : word << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void run_product(void** operands) {
    float a[16][16], b[8][16];
    for (u32 lane = 0; lane < 32; ++lane) {
        Product* own = static_cast<Product*>(operands[lane]);
        u32 g = lane / 4, t = lane % 4;
        for (u32 half = 0; half < 2; ++half) {
            for (u32 part = 0; part < 4; ++part) {
                a[g + part % 2 * 8][2 * t + part / 2 * 8 + half] = number(own->a[part], half);
            }
            for (u32 part = 0; part < 2; ++part) b[g][2 * t + part * 8 + half] = number(own->b[part], half);
        }
    }
    for (u32 lane = 0; lane < 32; ++lane) {
        float* sum = static_cast<Product*>(operands[lane])->sum;
        u32 g = lane / 4, t = lane % 4;
        for (u32 part = 0; part < 4; ++part) {
            const float* left = a[g + part / 2 * 8];
            const float* right = b[2 * t + part % 2];
            float value = sum[part];
            for (u32 depth = 0; depth < 16; ++depth) value = fmaf(left[depth], right[depth], value);
            sum[part] = value;
        }
    }
}

static inline void run_copy(const Copy& copy) {
    if (copy.from == nullptr) {
        memset(copy.to, 0, copy.bytes);
    } else {
        memcpy(copy.to, copy.from, copy.bytes);
    }
}

static inline void copy_async(void* to, const void* from, u32 bytes, bool valid) {
    if (!aligned("a copy's target", to, bytes) || !aligned("a copy's source", from, bytes)) return;
    Thread& thread = stage->threads[stage->running];
    Copy copy = {to, valid ? from : nullptr, bytes, thread.groups};
    if (stage->launch.backward) {
        run_copy(copy);
    } else {
        thread.copies.push_back(copy);
    }
}

static inline void wait_copies(u32 left) {
    Thread& thread = stage->threads[stage->running];
    size_t done = 0;
    while (done < thread.copies.size() && thread.copies[done].group + left < thread.groups) {
        run_copy(thread.copies[done]);
        ++done;
    }
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + done);
}

}  // namespace emulated

#define KERNEL(name, Arguments, most_threads, least_blocks, ...)                                                       \
    static void name##_body(const void* arguments) { __VA_ARGS__(*static_cast<const Arguments*>(arguments)); }         \
    extern "C" {                                                                                                       \
    VISIBLE emulated::Kernel name = {name##_body, #Arguments, sizeof(Arguments), most_threads};                        \
    }
#define SHARED(type, name, count)                                                                                      \
    static const char name##_key = 0;                                                                                  \
    type* name = static_cast<type*>(emulated::shared_array(&name##_key, sizeof(type) * (count)))

DEVICE u32 thread() { return emulated::stage->running; }
DEVICE u32 threads() { return emulated::stage->launch.threads; }
DEVICE u32 block_x() { return emulated::stage->block[0]; }
DEVICE u32 block_y() { return emulated::stage->block[1]; }
DEVICE u32 block_z() { return emulated::stage->block[2]; }
DEVICE u32 grid_x() { return emulated::stage->launch.grid[0]; }
DEVICE u32 grid_y() { return emulated::stage->launch.grid[1]; }
DEVICE u32 grid_z() { return emulated::stage->launch.grid[2]; }
DEVICE u8* dynamic_shared() { return emulated::stage->shared; }

DEVICE void sync_block() { emulated::wait(emulated::BARRIER, nullptr); }
DEVICE void sync_warp() {
    static const emulated::Operation operation = {"sync_warp", emulated::run_nothing};
    emulated::wait(operation, nullptr);
}

DEVICE u32 shuffle_xor(u32 value, u32 mask) { return emulated::shuffle(value, thread() ^ mask); }
DEVICE u64 shuffle_xor(u64 value, u32 mask) { return emulated::shuffle(value, thread() ^ mask); }
DEVICE float shuffle_xor(float value, u32 mask) { return emulated::shuffle(value, thread() ^ mask); }
DEVICE double shuffle_xor(double value, u32 mask) { return emulated::shuffle(value, thread() ^ mask); }
DEVICE u32 shuffle_from(u32 value, u32 source) { return emulated::shuffle(value, source); }
DEVICE u64 shuffle_from(u64 value, u32 source) { return emulated::shuffle(value, source); }
DEVICE float shuffle_from(float value, u32 source) { return emulated::shuffle(value, source); }
DEVICE double shuffle_from(double value, u32 source) { return emulated::shuffle(value, source); }
DEVICE u32 ballot(bool yes) {
    static const emulated::Operation operation = {"ballot", emulated::run_ballot};
    u32 bits = yes;
    emulated::wait(operation, &bits);
    return bits;
}

// Threads change places nowhere but where they wait: nothing comes between reading and writing.
DEVICE u32 atomic_add(u32* at, u32 value) {
    u32 old = *at;
    *at = old + value;
    return old;
}
DEVICE u64 atomic_add(u64* at, u64 value) {
    u64 old = *at;
    *at = old + value;
    return old;
}
DEVICE u32 atomic_max(u32* at, u32 value) {
    u32 old = *at;
    *at = value > old ? value : old;
    return old;
}
DEVICE u64 atomic_max(u64* at, u64 value) {
    u64 old = *at;
    *at = value > old ? value : old;
    return old;
}

template <typename T>
DEVICE T* at(u64 address) {
    return reinterpret_cast<T*>(address);
}

// The same: a processor has one memory.
template <typename T>
DEVICE T* at_global(u64 address) {
    return at<T>(address);
}

DEVICE u32 count_ones(u32 bits) { return __builtin_popcount(bits); }
DEVICE u32 bits_of(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}
DEVICE float float_of(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
DEVICE u64 bits_of(double value) {
    u64 bits;
    memcpy(&bits, &value, 8);
    return bits;
}
DEVICE double double_of(u64 bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float exp2_fast(float x) { return exp2f(x); }

DEVICE u32 pack_bf16(float low, float high) {
    u32 halves[2];
    for (u32 half = 0; half < 2; ++half) {
        u32 bits = bits_of(half ? high : low);
        bool number = (bits & 0x7fffffffu) <= 0x7f800000u;
        halves[half] = number ? (bits + 0x7fffu + (bits >> 16 & 1)) >> 16 : 0x7fffu;
    }
    return halves[0] | halves[1] << 16;
}

DEVICE void copy_async_16(void* to, const void* from, bool valid) { emulated::copy_async(to, from, 16, valid); }
DEVICE void copy_async_8(void* to, const void* from, bool valid) { emulated::copy_async(to, from, 8, valid); }
DEVICE void copy_async_4(void* to, const void* from, bool valid) { emulated::copy_async(to, from, 4, valid); }
DEVICE void end_copy_group() { ++emulated::stage->threads[thread()].groups; }
template <int left>
DEVICE void wait_copies() {
    emulated::wait_copies(left);
}

DEVICE void load_matrices(u32 (&to)[4], const void* row) {
    emulated::aligned("a row of a matrix", row, 16);
    static const emulated::Operation operation = {"load_matrices", emulated::run_load<false>};
    emulated::Matrices operands = {to, row};
    emulated::wait(operation, &operands);
}
DEVICE void load_matrices_transposed(u32 (&to)[4], const void* row) {
    emulated::aligned("a row of a matrix", row, 16);
    static const emulated::Operation operation = {"load_matrices_transposed", emulated::run_load<true>};
    emulated::Matrices operands = {to, row};
    emulated::wait(operation, &operands);
}

DEVICE void multiply_matrices(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    static const emulated::Operation operation = {"multiply_matrices", emulated::run_product};
    emulated::Product operands = {sum, a, {b0, b1}};
    emulated::wait(operation, &operands);
}
