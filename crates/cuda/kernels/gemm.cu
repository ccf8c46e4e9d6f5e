// Products of rows with weight matrices: out[row, column] = sum over the depth of input[row, depth] * weight[column,
// depth], both with their depth contiguous. The module defines TYPE (part of the kernels' names), BITS of a weight (32,
// 16, 8 or 4) and, for products in f32, SINGLE.
//
// An output is one chain of sums over the depth, ascending: of m16n8k16 products with f32 sums, or of fused f32 sums.
// The depth is never divided, so that an output's bits depend neither on the tile nor on the rows beside it.
//
// # What cannot be avoided (m rows, n columns, depth k, bf16)
//
// Operations: 2 m n k. Bytes: the weights once, 2 n k, while m is small; each block also reads its rows, so that all
// blocks together read 2 m n k / COLUMNS bytes of inputs, from the second-level cache, and 2 m n k / ROWS of weights. A
// tile is chosen (on the other side, `src/kernels/gemm.rs`) to keep all processors busy first and these small second.
//
// # Few rows: weights at memory bandwidth
//
// A card with bandwidth b and latency l has b * l bytes under way: 4.8 TB/s * 0.8 us / 132 processors = 29 KiB each. A
// tile of 32 columns gives 128 blocks for 4096 columns; its stages of 128 deep hold 8 KiB of weights, of which five are
// under way behind the one that is multiplied. The chain of products takes about 33 cycles for 16 deep: less than a
// processor's share of the bandwidth needs for these bytes.
//
// # Many rows: the matrix units
//
// A warp's tile of 64 x 64 reads 4 KiB of shared memory for each 32 products (16 deep), which is 32 cycles at 128 bytes
// a cycle; the products take 4 warps * 32 / 4 units * 8 cycles (sm_80) = 256 cycles while the four warps read for 128.
// A tile of 128 x 256 with eight such warps writes 12 KiB (96 cycles) and reads 32 KiB (256 cycles) during products of
// 512 cycles (sm_80) or about 410 (sm_90 through mma.sync): the units stay the limit. Its sums are 128 registers a
// thread, so that 256 threads of at most 255 registers fill a processor.
//
// # Shared memory
//
// A slab is 64 deep: rows of 128 bytes, whose eight chunks of 16 bytes are permuted by `chunk ^ row % 8`. The eight
// rows of a matrix of `load_matrices` then lie in all banks, and so do the chunks of a row that eight lanes copy. One
// barrier a stage: a copy into a stage is asked for behind the barrier that all warps reach when they have multiplied
// it.
//
// Weights of 8 and 4 bits wait in shared memory as they came, each thread's own copies at its own place, are unpacked
// by the thread that copied them to bf16 (the f32 product of scale and integer, rounded: the values that the CPU
// multiplies), and meet the others' behind the same barrier, in one of two slabs by turns.

#define SLAB 64
#define GROUP 32

enum End { STORE, ADD, SILU };

// A block's place in the product: the number of its matrix, its first column and its rows.
struct Place {
    u32 part;
    u32 column;
    u32 row;
    u32 rows;
};

// Fills the place; false if the block has no rows.
template <u32 COLUMNS, u32 ROWS>
DEVICE bool find_place(const GemmArgs& args, Place& place) {
    u32 count = *at<const u32>(args.list.count);
    place.rows = count > args.first ? smaller(count - args.first, args.rows) : 0;
    place.row = block_x() * ROWS;
    place.part = 0;
    u32 tile = block_y();
    UNROLL
    for (u32 part = 0; part < 2; ++part) {
        u32 tiles = ceiling(args.part[part].columns, COLUMNS);
        if (place.part < part || tile < tiles) break;
        tile -= tiles;
        place.part = part + 1;
    }
    place.column = tile * COLUMNS;
    return place.row < place.rows;
}

DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// A row's outputs from a column on.
template <typename T, End END>
DEVICE u64 outputs_of(const GemmArgs& args, const Place& place, u32 row, u32 column) {
    const GemmPart& part = args.part[place.part];
    u32 target = END == ADD ? at<const u32>(args.list.rows)[args.first + row] : row;
    u64 first = static_cast<u64>(target) * part.stride;
    return part.out + (END == SILU ? (first + column / 2) * sizeof(T) : (first + column) * sizeof(float));
}

// What two neighbouring sums of a row, the first of an even column, are added to at `to`; zeros where there is nothing.
template <End END>
DEVICE Floats2 outputs_before(const GemmPart& part, u64 to, u32 column) {
    Floats2 before = {};
    if (END != ADD || column >= part.columns) return before;
    bool both = column + 1 < part.columns;
    if (both && part.stride % 2 == 0) return *at<const Floats2>(to);
    before.number[0] = at<const float>(to)[0];
    if (both) before.number[1] = at<const float>(to)[1];
    return before;
}

// What becomes of two neighbouring sums of a row, the first of an even column, whose outputs are at `to`. All that a
// thread adds to is read before it writes any: else each read would wait for the write before it.
template <typename T, End END>
DEVICE void finish(const GemmPart& part, u64 to, u32 column, float first, float second, const Floats2& before) {
    if (column >= part.columns) return;
    bool both = column + 1 < part.columns;
    if (part.bias != 0) {
        const float* bias = at<const float>(part.bias) + column;
        first += bias[0];
        if (both) second += bias[1];
    }
    if (END == ADD) {
        first += before.number[0];
        second += before.number[1];
    }
    if (END == SILU) {
        *at<T>(to) = narrow<T>(silu(first) * second);
    } else if (both && part.stride % 2 == 0) {
        *at<Floats2>(to) = Floats2{{first, second}};
    } else {
        at<float>(to)[0] = first;
        if (both) at<float>(to)[1] = second;
    }
}

// The block of a matrix's last columns fills its rows of gated outputs with zeros up to their stride.
template <typename T, u32 COLUMNS, u32 ROWS>
DEVICE void pad_rows(const GemmPart& part, const Place& place) {
    if (place.column + COLUMNS < part.columns) return;
    u32 first = part.columns / 2, width = part.stride - first;
    u32 numbers = smaller(ROWS, place.rows - place.row) * width;
    for (u32 index = thread(); index < numbers; index += threads()) {
        u32 row = place.row + index / width;
        at<T>(part.out)[static_cast<u64>(row) * part.stride + first + index % width] = narrow<T>(0.0f);
    }
}

#if BITS < 16

// Number `index` of a word of integers, exact: an integer in the lower bits of 2^23 is that much more.
DEVICE float integer(u32 word, u32 index) {
#if BITS == 8
    return float_of(0x4b000000u | ((word ^ 0x80808080u) >> (index * 8) & 0xff)) - 8388736.0f;
#else
    return float_of(0x4b000000u | (word >> (index * 4) & 0xf)) - 8388616.0f;
#endif
}

#endif

#ifndef SINGLE

// A tile of COLUMNS x ROWS by ROW_WARPS x COLUMN_WARPS warps, in STAGES of SLABS slabs.
template <u32 COLUMNS_, u32 ROWS_, u32 ROW_WARPS, u32 COLUMN_WARPS, u32 SLABS_, u32 STAGES_>
struct Tile {
    static constexpr u32 COLUMNS = COLUMNS_, ROWS = ROWS_, SLABS = SLABS_, STAGES = STAGES_;
    static constexpr u32 THREADS = ROW_WARPS * COLUMN_WARPS * 32;
    static constexpr u32 WARP_ROWS = ROWS / ROW_WARPS, WARP_COLUMNS = COLUMNS / COLUMN_WARPS;
    // Bytes of a stage's slabs.
    static constexpr u32 INPUT = ROWS * SLABS * SLAB * 2, WEIGHT = COLUMNS * SLABS * SLAB * 2;
    // A thread's chunks of 16 weights in a stage, if they have to be unpacked.
    static constexpr u32 CHUNKS = COLUMNS * SLABS * SLAB / 16 / THREADS;
    static constexpr u32 CHUNK = BITS * 2;
    static_assert(WARP_ROWS % 16 == 0 && WARP_COLUMNS % 8 == 0, "whole fragments");
};

// Place of a chunk of 16 bytes in a slab.
DEVICE u32 chunk_place(u32 row, u32 chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

// Asks for slabs of rows: of `rows` from `from` on, `depth` numbers apart, those that lie before the depth's end.
template <typename T, u32 ROWS>
DEVICE void copy_slabs(u8* to, const bf16* from, u32 rows, u32 depth, u32 slab) {
    constexpr u32 STEP = T::THREADS / 8;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "all threads copy, and all their rows are turned the same way");
    u32 row = thread() / 8, chunk = thread() % 8;
    to += chunk_place(row, chunk);
    from += static_cast<u64>(row) * depth + slab * SLAB + chunk * 8;
    UNROLL
    for (u32 further = 0; further < ROWS; further += STEP) {
        UNROLL
        for (u32 step = 0; step < T::SLABS; ++step) {
            bool valid = row + further < rows && (slab + step) * SLAB < depth;
            copy_async_16(to + (step * ROWS + further) * 128, from + step * SLAB, valid);
        }
        from += static_cast<u64>(STEP) * depth;
    }
}

#if BITS < 16

// 16 packed weights.
#if BITS == 8
typedef Words4 Chunk;
#else
typedef Words2 Chunk;
#endif

// Asks for a thread's own chunks of packed weights, and their scales: of columns from `first` on.
template <typename T>
DEVICE void copy_packed(u8* chunks, float* scales, const GemmPart& part, u32 first, u32 depth, u32 slab) {
    UNROLL
    for (u32 index = 0; index < T::CHUNKS; ++index) {
        u32 number = index * T::THREADS + thread();
        u32 column = first + number / 4 % T::COLUMNS;
        u32 deep = (slab + number / 4 / T::COLUMNS) * SLAB + number % 4 * 16;
        bool valid = column < part.columns && deep < depth;
        u64 offset = static_cast<u64>(column) * depth + deep;
        const u8* from = at<const u8>(part.weight) + offset * BITS / 8;
        if (BITS == 8) {
            copy_async_16(chunks + number * T::CHUNK, from, valid);
        } else {
            copy_async_8(chunks + number * T::CHUNK, from, valid);
        }
        copy_async_4(scales + number, at<const float>(part.scales) + offset / GROUP, valid);
    }
}

// Unpacks them into slabs.
template <typename T>
DEVICE void unpack(u8* slabs, const u8* chunks, const float* scales) {
    UNROLL
    for (u32 index = 0; index < T::CHUNKS; ++index) {
        u32 number = index * T::THREADS + thread();
        u32 part = number % 4, column = number / 4 % T::COLUMNS, step = number / 4 / T::COLUMNS;
        // In one go: word by word, lanes would read from every fourth or second bank.
        Chunk packed = *reinterpret_cast<const Chunk*>(chunks + number * T::CHUNK);
        float scale = scales[number];
        Words4 weights[2];
        UNROLL
        for (u32 pair = 0; pair < 8; ++pair) {
            u32 word = packed.word[pair * BITS / 16], place = pair * 2 % (32 / BITS);
            weights[pair / 4].word[pair % 4] =
                pack_bf16(scale * integer(word, place), scale * integer(word, place + 1));
        }
        u8* slab = slabs + step * T::COLUMNS * 128;
        UNROLL
        for (u32 half = 0; half < 2; ++half) {
            *reinterpret_cast<Words4*>(slab + chunk_place(column, part * 2 + half)) = weights[half];
        }
    }
}

#endif

template <typename T>
struct Sums {
    float of[T::WARP_ROWS / 16][T::WARP_COLUMNS / 8][4];
};

// Adds the products of a slab.
template <typename T>
DEVICE void multiply_slab(Sums<T>& sums, const u8* input, const u8* weight) {
    constexpr u32 ACROSS = T::COLUMNS / T::WARP_COLUMNS;
    u32 row = warp() / ACROSS * T::WARP_ROWS + lane() % 16, column = warp() % ACROSS * T::WARP_COLUMNS + lane() % 8;
    // Other chunks of a row differ in bits that are turned alike; every eighth row is turned alike.
    u32 of_row = chunk_place(row, lane() / 16), of_column = chunk_place(column, lane() / 8);
    UNROLL
    for (u32 deep = 0; deep < 8; deep += 4) {
        u32 b[T::WARP_COLUMNS / 8][4];
        UNROLL
        for (u32 n = 0; n < T::WARP_COLUMNS / 8; ++n) {
            load_matrices(b[n], weight + (of_column ^ deep * 16) + n * 8 * 128);
        }
        UNROLL
        for (u32 half = 0; half < 2; ++half) {
            u32 a[T::WARP_ROWS / 16][4];
            UNROLL
            for (u32 m = 0; m < T::WARP_ROWS / 16; ++m) {
                load_matrices(a[m], input + (of_row ^ (deep + half * 2) * 16) + m * 16 * 128);
            }
            UNROLL
            for (u32 n = 0; n < T::WARP_COLUMNS / 8; ++n) {
                UNROLL
                for (u32 m = 0; m < T::WARP_ROWS / 16; ++m) {
                    multiply_matrices(sums.of[m][n], a[m], b[n][half * 2], b[n][half * 2 + 1]);
                }
            }
        }
    }
}

template <typename T, End END>
DEVICE void gemm(const GemmArgs& args) {
    Place place;
    if (!find_place<T::COLUMNS, T::ROWS>(args, place)) return;
    const GemmPart& part = args.part[place.part];
    u32 depth = args.depth, slabs = depth / SLAB;
    const bf16* input = at<const bf16>(args.input) + static_cast<u64>(place.row) * depth;
    u8* inputs = dynamic_shared();
    u8* weights = inputs + T::STAGES * T::INPUT;
#if BITS < 16
    // Two slabs of unpacked weights, then stages of packed ones and of their scales.
    u8* chunks = weights + 2 * T::WEIGHT;
    float* scales = reinterpret_cast<float*>(chunks + T::STAGES * T::CHUNKS * T::THREADS * T::CHUNK);
#else
    const bf16* weight = at<const bf16>(part.weight) + static_cast<u64>(place.column) * depth;
#endif
    auto copy = [&](u32 step) {
        u32 stage = step % T::STAGES, slab = step * T::SLABS;
        if (slab < slabs) {
            copy_slabs<T, T::ROWS>(inputs + stage * T::INPUT, input, place.rows - place.row, depth, slab);
#if BITS < 16
            u32 first = stage * T::CHUNKS * T::THREADS;
            copy_packed<T>(chunks + first * T::CHUNK, scales + first, part, place.column, depth, slab);
#else
            u32 columns = part.columns - place.column;
            copy_slabs<T, T::COLUMNS>(weights + stage * T::WEIGHT, weight, columns, depth, slab);
#endif
        }
        end_copy_group();
    };
    UNROLL
    for (u32 step = 0; step + 1 < T::STAGES; ++step) copy(step);
    Sums<T> sums = {};
    ROLLED
    for (u32 step = 0; step * T::SLABS < slabs; ++step) {
        u32 stage = step % T::STAGES;
        wait_copies<T::STAGES - 2>();
#if BITS < 16
        u32 first = stage * T::CHUNKS * T::THREADS;
        const u8* ready = weights + step % 2 * T::WEIGHT;
        unpack<T>(weights + step % 2 * T::WEIGHT, chunks + first * T::CHUNK, scales + first);
#else
        const u8* ready = weights + stage * T::WEIGHT;
#endif
        sync_block();
        copy(step + T::STAGES - 1);
        UNROLL
        for (u32 slab = 0; slab < T::SLABS; ++slab) {
            if (step * T::SLABS + slab >= slabs) break;
            const u8* rows = inputs + stage * T::INPUT + slab * T::ROWS * 128;
            multiply_slab<T>(sums, rows, ready + slab * T::COLUMNS * 128);
        }
    }
    constexpr u32 ACROSS = T::COLUMNS / T::WARP_COLUMNS;
    u32 row = place.row + warp() / ACROSS * T::WARP_ROWS + lane() / 4;
    u32 column = place.column + warp() % ACROSS * T::WARP_COLUMNS + lane() % 4 * 2;
    UNROLL
    for (u32 half = 0; half < T::WARP_ROWS / 8; ++half, row += 8) {
        if (row >= place.rows) break;
        u64 out = outputs_of<bf16, END>(args, place, row, column);
        constexpr u32 APART = END == SILU ? 4 * sizeof(bf16) : 8 * sizeof(float);
        Floats2 before[T::WARP_COLUMNS / 8];
        UNROLL
        for (u32 n = 0; n < T::WARP_COLUMNS / 8; ++n) {
            before[n] = outputs_before<END>(part, out + n * APART, column + n * 8);
        }
        UNROLL
        for (u32 n = 0; n < T::WARP_COLUMNS / 8; ++n) {
            const float* sum = sums.of[half / 2][n] + half % 2 * 2;
            finish<bf16, END>(part, out + n * APART, column + n * 8, sum[0], sum[1], before[n]);
        }
    }
    if (END == SILU) pad_rows<bf16, T::COLUMNS, T::ROWS>(part, place);
}

#if BITS < 16
#define WIDE_STAGES 2
#else
#define WIDE_STAGES 3
#endif

typedef Tile<32, 16, 1, 4, 2, 6> Tile32x16;
typedef Tile<32, 32, 2, 2, 2, 6> Tile32x32;
typedef Tile<64, 32, 1, 4, 1, 6> Tile64x32;
typedef Tile<64, 64, 2, 2, 1, 4> Tile64x64;
typedef Tile<128, 128, 2, 4, 1, WIDE_STAGES> Tile128x128;
typedef Tile<128, 256, 4, 2, 1, 3> Tile128x256;

#define GEMM(type, size, blocks)                                                                                       \
    KERNEL(gemm_##type##_store_##size, GemmArgs, Tile##size::THREADS, blocks, gemm<Tile##size, STORE>)                 \
    KERNEL(gemm_##type##_add_##size, GemmArgs, Tile##size::THREADS, blocks, gemm<Tile##size, ADD>)                     \
    KERNEL(gemm_##type##_silu_##size, GemmArgs, Tile##size::THREADS, blocks, gemm<Tile##size, SILU>)
// One step more, so that TYPE is replaced.
#define GEMM_OF(type, size, blocks) GEMM(type, size, blocks)
GEMM_OF(TYPE, 32x16, 2)
GEMM_OF(TYPE, 32x32, 2)
GEMM_OF(TYPE, 64x32, 2)
GEMM_OF(TYPE, 64x64, 2)
GEMM_OF(TYPE, 128x128, 1)
GEMM_OF(TYPE, 128x256, 1)

#else  // SINGLE

// Products in f32, for exactness: a block of 16 x (THREADS / 16) threads, each with every 16th column and every
// (THREADS / 16)th row of the tile. Depth goes through shared memory 32 at a time, in rows of 33 words, so that lanes
// with neighbouring columns read from different banks.
template <u32 COLUMNS_, u32 ROWS_, u32 THREADS_>
struct Tile {
    static constexpr u32 COLUMNS = COLUMNS_, ROWS = ROWS_, THREADS = THREADS_, DOWN = THREADS / 16;
};

// Four weights from a depth on that is a multiple of four.
DEVICE Floats4 load_weights(const GemmPart& part, u32 column, u32 depth, u32 deep) {
    u64 offset = static_cast<u64>(column) * depth + deep;
#if BITS == 32
    return *reinterpret_cast<const Floats4*>(at<const float>(part.weight) + offset);
#else
    float scale = at<const float>(part.scales)[offset / GROUP];
    const u8* bytes = at<const u8>(part.weight) + offset * BITS / 8;
    u32 word = BITS == 8 ? *reinterpret_cast<const u32*>(bytes) : *reinterpret_cast<const u16*>(bytes);
    Floats4 weights;
    UNROLL
    for (u32 index = 0; index < 4; ++index) weights.number[index] = scale * integer(word, index);
    return weights;
#endif
}

template <typename T, End END>
DEVICE void gemm(const GemmArgs& args) {
    SHARED(float, inputs, T::ROWS * 33);
    SHARED(float, weights, T::COLUMNS * 33);
    Place place;
    if (!find_place<T::COLUMNS, T::ROWS>(args, place)) return;
    const GemmPart& part = args.part[place.part];
    const float* input = at<const float>(args.input) + static_cast<u64>(place.row) * args.depth;
    u32 across = thread() % 16, down = thread() / 16;
    float sums[T::ROWS / T::DOWN][T::COLUMNS / 16] = {};
    ROLLED
    for (u32 deep = 0; deep < args.depth; deep += 32) {
        sync_block();
        for (u32 number = thread(); number < (T::ROWS + T::COLUMNS) * 8; number += T::THREADS) {
            u32 row = number / 8, place_deep = number % 8 * 4;
            bool weight = row >= T::ROWS;
            u32 column = place.column + row - T::ROWS;
            Floats4 values = {};
            if (weight && column < part.columns) {
                values = load_weights(part, column, args.depth, deep + place_deep);
            } else if (!weight && place.row + row < place.rows) {
                const float* from = input + static_cast<u64>(row) * args.depth + deep + place_deep;
                values = *reinterpret_cast<const Floats4*>(from);
            }
            float* to = (weight ? weights + (row - T::ROWS) * 33 : inputs + row * 33) + place_deep;
            UNROLL
            for (u32 index = 0; index < 4; ++index) to[index] = values.number[index];
        }
        sync_block();
        UNROLL
        for (u32 k = 0; k < 32; ++k) {
            float b[T::COLUMNS / 16];
            UNROLL
            for (u32 n = 0; n < T::COLUMNS / 16; ++n) b[n] = weights[(n * 16 + across) * 33 + k];
            UNROLL
            for (u32 m = 0; m < T::ROWS / T::DOWN; ++m) {
                float a = inputs[(m * T::DOWN + down) * 33 + k];
                UNROLL
                for (u32 n = 0; n < T::COLUMNS / 16; ++n) sums[m][n] = multiply_add(a, b[n], sums[m][n]);
            }
        }
    }
    UNROLL
    for (u32 m = 0; m < T::ROWS / T::DOWN; ++m) {
        UNROLL
        for (u32 n = 0; n < T::COLUMNS / 16; ++n) {
            // A pair of columns ends together: its second sum comes from the next lane.
            float next = shuffle_xor(sums[m][n], 1);
            u32 row = place.row + m * T::DOWN + down, column = place.column + n * 16 + across;
            if (across % 2 != 0 || row >= place.rows) continue;
            u64 out = outputs_of<float, END>(args, place, row, column);
            finish<float, END>(part, out, column, sums[m][n], next, outputs_before<END>(part, out, column));
        }
    }
    if (END == SILU) pad_rows<float, T::COLUMNS, T::ROWS>(part, place);
}

typedef Tile<32, 16, 128> Tile32x16;
typedef Tile<64, 64, 256> Tile64x64;

#define GEMM(type, size)                                                                                               \
    KERNEL(gemm_##type##_store_##size, GemmArgs, Tile##size::THREADS, 2, gemm<Tile##size, STORE>)                      \
    KERNEL(gemm_##type##_add_##size, GemmArgs, Tile##size::THREADS, 2, gemm<Tile##size, ADD>)                          \
    KERNEL(gemm_##type##_silu_##size, GemmArgs, Tile##size::THREADS, 2, gemm<Tile##size, SILU>)
#define GEMM_OF(type, size) GEMM(type, size)
GEMM_OF(TYPE, 32x16)
GEMM_OF(TYPE, 64x64)

#endif  // SINGLE
