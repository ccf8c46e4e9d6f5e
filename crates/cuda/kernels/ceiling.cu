// What a card can do at most: reading memory, and products on registers alone.

// Adds up all words. Four of a thread's loads are under way at once.
DEVICE u32 sum_words(const Words4& words) { return words.word[0] + words.word[1] + words.word[2] + words.word[3]; }

DEVICE void read_memory(const CeilingArgs& args) {
    const Words4* from = at<const Words4>(args.memory);
    u64 step = u64(grid_x()) * threads();
    u64 i = u64(block_x()) * threads() + thread();
    u32 sum = 0;
    for (; i + 3 * step < args.quads; i += 4 * step) {
        Words4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        sum += sum_words(a) + sum_words(b) + sum_words(c) + sum_words(d);
    }
    for (; i < args.quads; i += step) sum += sum_words(from[i]);
    sum = sum_lanes(sum);
    if (lane() == 0) atomic_add(at<u32>(args.out), sum);
}

KERNEL(ceiling_read, CeilingArgs, 512, 1, read_memory)

// Sums that wait for nothing but themselves: as many as hide how long a product takes.
#define CEILING_SUMS 8

// Products of ones: each sum grows by 16 in a round.
DEVICE void multiply_bf16(const CeilingArgs& args) {
    u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    float sums[CEILING_SUMS][4] = {};
    ROLLED
    for (u32 round = 0; round < args.rounds; round++) {
        UNROLL
        for (u32 i = 0; i < CEILING_SUMS; i++) multiply_matrices(sums[i], ones, ones[0], ones[1]);
    }
    float total = 0.0f;
    for (u32 i = 0; i < CEILING_SUMS; i++) total += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    at<float>(args.out)[u64(block_x()) * threads() + thread()] = total;
}

KERNEL(ceiling_bf16, CeilingArgs, 512, 1, multiply_bf16)

// The same in f32: each sum grows by 1 in a round. The factor comes from memory, lest the compiler adds by itself.
DEVICE void multiply_f32(const CeilingArgs& args) {
    float one = at<float>(args.memory)[0];
    float sums[CEILING_SUMS] = {};
    ROLLED
    for (u32 round = 0; round < args.rounds; round++) {
        UNROLL
        for (u32 i = 0; i < CEILING_SUMS; i++) sums[i] = multiply_add(one, one, sums[i]);
    }
    float total = 0.0f;
    for (u32 i = 0; i < CEILING_SUMS; i++) total += sums[i];
    at<float>(args.out)[u64(block_x()) * threads() + thread()] = total;
}

KERNEL(ceiling_f32, CeilingArgs, 512, 1, multiply_f32)
