// The primitives that kernels are written in: everything that is not plain C++ stands here, for the GPU as PTX and
// built-ins. The emulator has the same names in plain C++ (`cuda-emulator/kernels/emulated.h`, which then stands in front
// of this file). Nothing is included: NVRTC has no headers at hand.
//
// Fragments, by the PTX manual ("Matrix fragments for mma.m16n8k16", "ldmatrix"); lane = 4 * g + t, g in 0..8, t in
// 0..4; a register holds two bf16, the one of the lower column or depth in the lower half:
//
//   A [16 rows, 16 deep]    a0: row g, depth 2t    a1: row g + 8, depth 2t
//                           a2: row g, depth 2t+8  a3: row g + 8, depth 2t + 8
//   B [16 deep, 8 columns]  b0: depth 2t, column g    b1: depth 2t + 8, column g
//   D [16 rows, 8 columns]  d0, d1: row g, columns 2t, 2t + 1    d2, d3: row g + 8
//
//   load_matrices: lane i gives the address of row i % 8 (16 bytes) of matrix i / 8; register m of lane l then holds
//   numbers 2t, 2t + 1 of row g of matrix m. Transposed: number g of rows 2t and 2t + 1.
//
// So that four matrices (rows 0..8 | 8..16) x (depth 0..8 | 8..16), in the order of a0..a3, are an A; and the two
// matrices depth 0..8 | 8..16 of eight columns, each column's depth contiguous, are a B. A B whose columns are
// contiguous instead (V of attention) is loaded transposed.
#ifndef DEMASK_EMULATED

#define DEVICE __device__ __forceinline__
// A kernel: `KERNEL(name, structure, most threads of a block, blocks to fit on a processor, function)`. The function
// may be an instance of a template.
#define KERNEL(name, Arguments, most_threads, least_blocks, ...)                                                       \
    extern "C" __global__ void __launch_bounds__(most_threads, least_blocks) name(const Arguments arguments) {         \
        __VA_ARGS__(arguments);                                                                                        \
    }
// An array in the block's shared memory, with whatever was in it. On a line of its own, once for each name.
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
// Where a field begins, in bytes: the compiler's own way to it, as it knows no other.
#define OFFSET(type, field) __INTADDR__(&static_cast<type*>(nullptr)->field)
#define UNROLL _Pragma("unroll")
// The loop behind it stays a loop.
#define ROLLED _Pragma("unroll 1")

DEVICE u32 thread() { return threadIdx.x; }
DEVICE u32 threads() { return blockDim.x; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 grid_x() { return gridDim.x; }
DEVICE u32 grid_y() { return gridDim.y; }
DEVICE u32 grid_z() { return gridDim.z; }

// The block's dynamic shared memory, aligned to 128 bytes.
DEVICE u8* dynamic_shared() {
    extern __shared__ __align__(128) u8 dynamic_shared_memory[];
    return dynamic_shared_memory;
}

// All threads of the block, or all lanes of the warp, must come here; what they wrote before is then seen by all.
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }

// The value of lane `lane() ^ mask`, or of a named lane; all lanes of the warp take part.
DEVICE u32 shuffle_xor(u32 value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE u64 shuffle_xor(u64 value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE float shuffle_xor(float value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE double shuffle_xor(double value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE u32 shuffle_from(u32 value, u32 source) { return __shfl_sync(0xffffffffu, value, source); }
DEVICE u64 shuffle_from(u64 value, u32 source) { return __shfl_sync(0xffffffffu, value, source); }
DEVICE float shuffle_from(float value, u32 source) { return __shfl_sync(0xffffffffu, value, source); }
DEVICE double shuffle_from(double value, u32 source) { return __shfl_sync(0xffffffffu, value, source); }
// Bit i: whether lane i says yes; all lanes of the warp take part.
DEVICE u32 ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }

// Adds in one go and returns what was there; integers, so that the order does not matter.
DEVICE u32 atomic_add(u32* at, u32 value) { return atomicAdd(at, value); }
DEVICE u64 atomic_add(u64* at, u64 value) { return atomicAdd(at, value); }
DEVICE u32 atomic_max(u32* at, u32 value) { return atomicMax(at, value); }
DEVICE u64 atomic_max(u64* at, u64 value) { return atomicMax(at, value); }

DEVICE u32 count_ones(u32 bits) { return __popc(bits); }
DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE u64 bits_of(double value) { return __double_as_longlong(value); }
DEVICE double double_of(u64 bits) { return __longlong_as_double(bits); }

// a * b + c, rounded once. The kernels are compiled without contraction: a fused sum is fused because it says so.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
// 2 to the power x to 22 bits; exactly 1 for 0 and exactly 0 for minus infinity.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two numbers rounded to bf16, ties to even, as the halves of a word.
DEVICE u32 pack_bf16(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// The memory at an address.
template <typename T>
DEVICE T* at(u64 address) {
    return reinterpret_cast<T*>(address);
}

// The same, and that it is global memory: for accesses where the compiler does not find out, which would do so each time
// while they run. Only there: in kernels with many addresses NVRTC 12.9 needs minutes, and more, to follow it.
template <typename T>
DEVICE T* at_global(u64 address) {
    return static_cast<T*>(__cvta_global_to_generic(address));
}

DEVICE u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }

// Copies 16 (8, 4) bytes from global to shared memory, both aligned to as many, or writes zeros if not `valid`: nothing
// is then read. They are there for this thread behind `wait_copies`, for others behind a barrier after that.
DEVICE void copy_async_16(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
DEVICE void copy_async_8(void* to, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 8 : 0)
                 : "memory");
}
DEVICE void copy_async_4(void* to, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}
// Ends a group: this thread's copies since the last group.
DEVICE void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the `left` youngest groups of this thread are under way.
template <int left>
DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Four matrices of 8 rows of 16 bytes from shared memory; see the layouts above.
DEVICE void load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
DEVICE void load_matrices_transposed(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// sum += a * b, sums in f32.
DEVICE void multiply_matrices(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif  // DEMASK_EMULATED

#define INFINITY_F32 float_of(0x7f800000u)

// Lane of the warp, warp of the block.
DEVICE u32 lane() { return thread() % 32; }
DEVICE u32 warp() { return thread() / 32; }

// Whether two types are the same.
template <typename A, typename B>
struct Same {
    static constexpr bool YES = false;
};
template <typename A>
struct Same<A, A> {
    static constexpr bool YES = true;
};

// Words that are moved together.
struct alignas(8) Words2 {
    u32 word[2];
};
struct alignas(16) Words4 {
    u32 word[4];
};
struct alignas(8) Floats2 {
    float number[2];
};
struct alignas(16) Floats4 {
    float number[4];
};

// The upper half of an f32.
struct bf16 {
    u16 bits;
};

DEVICE float widen(float value) { return value; }
DEVICE float widen(bf16 value) { return float_of(static_cast<u32>(value.bits) << 16); }
// The halves of a word of two bf16.
DEVICE float low_half(u32 word) { return float_of(word << 16); }
DEVICE float high_half(u32 word) { return float_of(word & 0xffff0000u); }

// Rounds to T, ties to even.
template <typename T>
DEVICE T narrow(float value);
template <>
DEVICE float narrow<float>(float value) {
    return value;
}
template <>
DEVICE bf16 narrow<bf16>(float value) {
    return bf16{static_cast<u16>(pack_bf16(value, 0.0f))};
}

DEVICE u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
DEVICE u32 larger(u32 a, u32 b) { return a > b ? a : b; }
DEVICE float larger(float a, float b) { return a > b ? a : b; }
DEVICE constexpr u32 ceiling(u32 count, u32 part) { return (count + part - 1) / part; }

// Sum, or largest, over all lanes; every lane gets it, by the same tree.
DEVICE float sum_lanes(float value) {
    UNROLL
    for (u32 mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
DEVICE double sum_lanes(double value) {
    UNROLL
    for (u32 mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
DEVICE u32 sum_lanes(u32 value) {
    UNROLL
    for (u32 mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
DEVICE float largest_lane(float value) {
    UNROLL
    for (u32 mask = 16; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
    return value;
}
