// What the threads of a block find together: sums in one order, which the number of threads alone decides, and places in
// lists. Numbers as integers of the same order.
#pragma once

#define NOBODY 0xffffffffu

// IEEE half.
struct f16 {
    u16 bits;
};

// Its exponent is 112 lower than that of an f32; the product makes up for it, and normal numbers of small ones.
DEVICE float widen(f16 value) {
    u32 sign = (value.bits & 0x8000u) << 16, rest = (value.bits & 0x7fffu) << 13;
    if (rest >= 0x7c00u << 13) return float_of(sign | 0x7f800000u | rest);
    return float_of(sign | bits_of(float_of(rest) * 5.192296858534828e33f));
}

DEVICE u32 warps() { return threads() / 32; }

// The sum over a block, in every thread: of each warp, then of the warps. `sums` is shared, one number for each lane.
DEVICE float sum_block(float value, float* sums) {
    value = sum_lanes(value);
    if (lane() == 0) sums[warp()] = value;
    sync_block();
    float sum = sum_lanes(lane() < warps() ? sums[lane()] : 0.0f);
    sync_block();
    return sum;
}

// The sum of the integers of all lanes up to this one.
template <typename N>
DEVICE N sum_up_to(N value) {
    UNROLL
    for (u32 step = 1; step < 32; step *= 2) {
        N other = shuffle_from(value, lane() >= step ? lane() - step : lane());
        value += lane() >= step ? other : 0;
    }
    return value;
}

// The sum of the integers of all threads of the block before this one, and of all. `sums` is shared, one number for each
// lane.
template <typename N>
DEVICE N sum_before(N value, N* sums, N* all) {
    N own = sum_up_to(value);
    if (lane() == 31) sums[warp()] = own;
    sync_block();
    N of_warps = sum_up_to(lane() < warps() ? sums[lane()] : N(0));
    N before = shuffle_from(of_warps, warp() > 0 ? warp() - 1 : 0);
    *all = shuffle_from(of_warps, 31);
    sync_block();
    return (warp() > 0 ? before : 0) + own - value;
}

// Integers in the order of numbers: those of negative ones the other way around.
DEVICE u32 ordered(float value) {
    u32 bits = bits_of(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE u64 ordered(double value) {
    u64 bits = bits_of(value);
    return bits >> 63 ? ~bits : bits | u64(1) << 63;
}
// The number of an integer.
DEVICE float unordered(u32 order) { return float_of(order & 0x80000000u ? order & 0x7fffffffu : ~order); }

// What SplitMix64's counter steps by.
#define GOLDEN 0x9e3779b97f4a7c15ull

// The finaliser of SplitMix64: a bijection that spreads every bit over all others.
DEVICE u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// What a row is multiplied by so that its mean square is 1.
DEVICE float norm_scale(const float* row, u32 width, float epsilon, float* sums) {
    float sum = 0.0f;
    for (u32 i = thread(); i < width; i += threads()) sum += row[i] * row[i];
    return 1.0f / sqrtf(sum_block(sum, sums) / float(width) + epsilon);
}
