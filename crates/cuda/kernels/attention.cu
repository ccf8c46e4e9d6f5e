// Attention of query rows over paged keys, by online softmax. A query is one head of one row; queries that share a K/V
// head are numbered row after row, so that neighbouring ones read the same keys.
//
// Keys come in spans of SPAN positions from position 0 on. A span begins with nothing; spans are put together in
// ascending order (`Softmax::join`). The narrow kernels run all spans at once, leave each span's sums in memory and
// have them put together by `attend_merge`; the wide ones go from span to span. Both do the same operations on the same
// numbers, whatever rows are beside a query: its bits depend on its own keys alone.
//
// A key at or beyond a query's limit weighs exactly 0. A tile of queries may hold rows of several segments: it is then
// run for each of them, and each run stores the rows of its own segment alone. Nothing passes from row to row of a
// product.
//
// # Cost
//
// K and V are read once for each tile of 64 queries of a K/V head: 4 * head_dim bytes a key. A warp's 16 queries take
// head_dim products for 64 keys, which read 256 * head_dim bytes of shared memory: at a head of 128, four warps read
// for 1024 cycles while the matrix units of sm_80 work for 1024. More queries a warp would halve the reading, but sums
// of the span and of those before it already take a register each: 128 of 255 at a head of 128. Wider heads are taken
// by two blocks, each with all scores and half of the sums. Two tiles of 32 keys at a head of 128, with the queries,
// are 48 KiB: two blocks fit into a processor with 100 KiB.

// What exponents are taken of: powers of 2 for bf16, of e for f32.
template <typename T>
struct Exponent;
template <>
struct Exponent<bf16> {
    static DEVICE float of(float x) { return exp2_fast(x); }
    static DEVICE float scale(float scale) { return scale * 1.4426950408889634f; }
};
template <>
struct Exponent<float> {
    static DEVICE float of(float x) { return expf(x); }
    static DEVICE float scale(float scale) { return scale; }
};

// What a query's softmax has come to: weights are relative to the largest score.
template <typename T>
struct Softmax {
    float largest;
    float sum;

    DEVICE void begin() {
        largest = -INFINITY_F32;
        sum = 0.0f;
    }

    // What scores are compared with: before any key there is no largest score.
    static DEVICE float base(float largest) { return largest == -INFINITY_F32 ? 0.0f : largest; }

    // Puts what comes behind to it: the factors of both sums.
    DEVICE void join(const Softmax& other, float& own, float& others) {
        float highest = larger(largest, other.largest);
        own = Exponent<T>::of(largest - base(highest));
        others = Exponent<T>::of(other.largest - base(highest));
        largest = highest;
        sum = multiply_add(other.sum, others, sum * own);
    }
};

// Start of a K/V head's K (which 0) or V (1) in a page.
template <typename T>
DEVICE const T* head_of(const AttendArgs& args, u64 page, u32 which, u32 kv_head) {
    u64 head = (static_cast<u64>(args.layer) * 2 + which) * args.store.kv_heads + kv_head;
    return at<const T>(page) + head * PAGE * args.store.head_dim;
}

// Address of the page with a position of a segment.
DEVICE u64 page_at(const AttendArgs& args, const SegmentRows& segment, u32 position) {
    u32 entry = smaller(position / PAGE, segment.entries - 1);
    return at<const u64>(args.store.pages)[at<const u32>(args.tables)[segment.table + entry]];
}

// Where a span's sums of a query stand.
DEVICE float* partial_of(const AttendArgs& args, u32 index, u32 head, u32 span) {
    u64 place = (static_cast<u64>(index) * args.heads + head) * args.spans + span;
    return at<float>(args.partial) + place * (args.store.head_dim + 2);
}

// Zeros behind a row's heads.
template <typename T>
DEVICE void pad_row(const AttendArgs& args, u32 index, u32 first, u32 step) {
    T* out = at<T>(args.out) + static_cast<u64>(index) * args.stride;
    for (u32 place = args.heads * args.store.head_dim + first; place < args.stride; place += step) {
        out[place] = narrow<T>(0.0f);
    }
}

// Puts the spans of a query together. Grid: rows, heads.
template <typename T>
DEVICE void merge(const AttendArgs& args) {
    u32 index = block_x(), head = block_y(), head_dim = args.store.head_dim;
    if (index >= *at<const u32>(args.list.count)) return;
    u32 limit = at<const u32>(args.limits)[at<const u32>(args.list.rows)[index]];
    T* out = at<T>(args.out) + static_cast<u64>(index) * args.stride + head * head_dim;
    for (u32 place = thread(); place < head_dim; place += threads()) {
        Softmax<T> softmax;
        softmax.begin();
        float total = 0.0f;
        for (u32 span = 0; span * SPAN < limit; ++span) {
            const float* partial = partial_of(args, index, head, span);
            Softmax<T> other = {partial[head_dim + 1], partial[head_dim]};
            float own, others;
            softmax.join(other, own, others);
            total = multiply_add(partial[place], others, total * own);
        }
        out[place] = narrow<T>(total * (1.0f / softmax.sum));
    }
    if (head == 0) pad_row<T>(args, index, thread(), threads());
}
KERNEL(attend_merge_f32, AttendArgs, 128, 4, merge<float>)
KERNEL(attend_merge_bf16, AttendArgs, 128, 4, merge<bf16>)

// Queries that a block takes.
#define QUERIES_F32 4
#define QUERIES_BF16 64

// In f32, for exactness: a warp takes a query, a page at a time; lanes are keys for the scores, and columns for the
// sums.
template <bool NARROW>
DEVICE void attend_single(const AttendArgs& args) {
    u32 group = args.heads / args.store.kv_heads, head_dim = args.store.head_dim;
    u32 query = block_x() * QUERIES_F32 + warp(), index = query / group;
    if (index >= *at<const u32>(args.list.count)) return;
    u32 head = block_y() * group + query % group;
    u32 row = at<const u32>(args.list.rows)[index];
    u32 limit = at<const u32>(args.limits)[row];
    SegmentRows segment = at<const SegmentRows>(args.segments)[at<const u32>(args.segment_of)[row]];
    const float* q = at<const float>(args.queries) + (static_cast<u64>(row) * args.heads + head) * head_dim;
    Softmax<float> total;
    total.begin();
    float totals[8] = {};
    u32 first = NARROW ? block_z() : 0;
    for (u32 span = first; span * SPAN < limit && (!NARROW || span == first); ++span) {
        Softmax<float> softmax;
        softmax.begin();
        float sums[8] = {};
        u32 end = smaller(limit, (span + 1) * SPAN);
        for (u32 start = span * SPAN; start < end; start += PAGE) {
            u64 page = page_at(args, segment, start);
            const float* k = head_of<float>(args, page, 0, block_y()) + lane() * head_dim;
            const float* v = head_of<float>(args, page, 1, block_y());
            float score = 0.0f;
            if (start + lane() < end) {
                for (u32 place = 0; place < head_dim; ++place) score = multiply_add(q[place], k[place], score);
            }
            score = start + lane() < end ? score * args.scale : -INFINITY_F32;
            float highest = larger(softmax.largest, largest_lane(score));
            float weight = expf(score - highest), decay = expf(softmax.largest - highest);
            softmax.largest = highest;
            softmax.sum = multiply_add(softmax.sum, decay, sum_lanes(weight));
            UNROLL
            for (u32 part = 0; part < 8; ++part) sums[part] *= decay;
            for (u32 key = 0; key < smaller(PAGE, end - start); ++key) {
                float of_key = shuffle_from(weight, key);
                UNROLL
                for (u32 part = 0; part < 8; ++part) {
                    u32 place = part * 32 + lane();
                    if (place < head_dim) sums[part] = multiply_add(of_key, v[key * head_dim + place], sums[part]);
                }
            }
        }
        if (NARROW) {
            float* partial = partial_of(args, index, head, span);
            UNROLL
            for (u32 part = 0; part < 8; ++part) {
                if (part * 32 + lane() < head_dim) partial[part * 32 + lane()] = sums[part];
            }
            if (lane() == 0) {
                partial[head_dim] = softmax.sum;
                partial[head_dim + 1] = softmax.largest;
            }
        } else {
            float own, others;
            total.join(softmax, own, others);
            UNROLL
            for (u32 part = 0; part < 8; ++part) totals[part] = multiply_add(sums[part], others, totals[part] * own);
        }
    }
    if (NARROW) return;
    float* out = at<float>(args.out) + static_cast<u64>(index) * args.stride + head * head_dim;
    UNROLL
    for (u32 part = 0; part < 8; ++part) {
        if (part * 32 + lane() < head_dim) out[part * 32 + lane()] = totals[part] * (1.0f / total.sum);
    }
    if (head == 0) pad_row<float>(args, index, lane(), 32);
}
KERNEL(attend_f32_narrow, AttendArgs, QUERIES_F32 * 32, 4, attend_single<true>)
KERNEL(attend_f32_wide, AttendArgs, QUERIES_F32 * 32, 4, attend_single<false>)

// Place of a chunk of 16 bytes of rows of WIDTH bf16: eight neighbouring rows' chunks lie in all banks, also where a
// row is half of them. Other chunks of a row differ in bits that are turned alike; every eighth row is turned alike.
template <u32 WIDTH>
DEVICE u32 chunk_place(u32 row, u32 chunk) {
    u32 turn = WIDTH >= 64 ? row % 8 : row / 2 % 4;
    return (row * (WIDTH / 8) + (chunk ^ turn)) * 16;
}

// On the matrix units, heads of up to WIDTH (zeros behind them): four warps with 16 queries each, KEYS keys at a time.
// A block sums COLUMNS columns of V: a thread's registers hold no more.
template <u32 WIDTH_>
struct Heads {
    static constexpr u32 WIDTH = WIDTH_, COLUMNS = WIDTH > 128 ? 128 : WIDTH, PARTS = WIDTH / COLUMNS;
    static constexpr u32 KEYS = WIDTH > 64 ? 32 : 64, TILES = SPAN / KEYS;
    // Bytes of a tile of K and of V.
    static constexpr u32 K_TILE = KEYS * WIDTH * 2, V_TILE = KEYS * COLUMNS * 2;
};

// Rows `lane() / 4` and `lane() / 4 + 8` of a warp's queries, as this thread has them: its columns of the sums.
template <typename H>
struct Part {
    Softmax<bf16> softmax[2];
    float sums[H::COLUMNS / 8][4];

    DEVICE void begin() {
        softmax[0].begin();
        softmax[1].begin();
        UNROLL
        for (u32 n = 0; n < H::COLUMNS / 8; ++n) {
            UNROLL
            for (u32 part = 0; part < 4; ++part) sums[n][part] = 0.0f;
        }
    }
};

// Shared memory of a block.
template <typename H>
struct Shelf {
    u8* queries;
    u8* keys;
    // Pages of the span under way and of the next, by turns.
    u64* pages;
    // Keys that each query sees in the segment under way.
    u32* limits;

    // Of this thread's rows. Read where it is used, not kept: registers are for the sums.
    DEVICE u32 limit(u32 half) const { return limits[warp() * 16 + lane() / 4 + half * 8]; }
};

// Takes a tile of keys.
template <typename H>
DEVICE void take_keys(Part<H>& part, const Shelf<H>& shelf, u32 tile, float scale) {
    const u8* queries = shelf.queries;
    const u8* k = shelf.keys + tile % 2 * (H::K_TILE + H::V_TILE);
    const u8* v = k + H::K_TILE;
    float scores[H::KEYS / 8][4] = {};
    u32 of_query = chunk_place<H::WIDTH>(warp() * 16 + lane() % 16, lane() / 16);
    u32 of_key = chunk_place<H::WIDTH>(lane() % 8, lane() / 8);
    UNROLL
    for (u32 chunk = 0; chunk < H::WIDTH / 8; chunk += 4) {
        u32 a[2][4];
        UNROLL
        for (u32 half = 0; half < 2; ++half) load_matrices(a[half], queries + (of_query ^ (chunk + half * 2) * 16));
        UNROLL
        for (u32 n = 0; n < H::KEYS / 8; ++n) {
            u32 b[4];
            load_matrices(b, k + (of_key ^ chunk * 16) + n * 8 * H::WIDTH * 2);
            multiply_matrices(scores[n], a[0], b[0], b[1]);
            multiply_matrices(scores[n], a[1], b[2], b[3]);
        }
    }
    float bases[2];
    UNROLL
    for (u32 half = 0; half < 2; ++half) {
        Softmax<bf16>& softmax = part.softmax[half];
        float highest = softmax.largest;
        // Keys of the tile that are seen, as this thread's columns count them.
        i32 limit = static_cast<i32>(shelf.limit(half) - tile * H::KEYS - lane() % 4 * 2);
        UNROLL
        for (i32 n = 0; n < static_cast<i32>(H::KEYS / 8); ++n) {
            UNROLL
            for (i32 of = 0; of < 2; ++of) {
                float& score = scores[n][half * 2 + of];
                score = n * 8 + of < limit ? score * scale : -INFINITY_F32;
                highest = larger(highest, score);
            }
        }
        highest = larger(highest, shuffle_xor(highest, 1));
        highest = larger(highest, shuffle_xor(highest, 2));
        bases[half] = Softmax<bf16>::base(highest);
        float decay = exp2_fast(softmax.largest - bases[half]);
        softmax.largest = highest;
        softmax.sum *= decay;
        UNROLL
        for (u32 n = 0; n < H::COLUMNS / 8; ++n) {
            part.sums[n][half * 2] *= decay;
            part.sums[n][half * 2 + 1] *= decay;
        }
    }
    u32 of_value = chunk_place<H::COLUMNS>(lane() % 16, lane() / 16);
    UNROLL
    for (u32 key = 0; key < H::KEYS; key += 16) {
        // Weights in the layout of scores are an A of the next product: two bf16 of a row a register.
        u32 a[4];
        UNROLL
        for (u32 place = 0; place < 4; ++place) {
            const float* pair = scores[key / 8 + place / 2] + place % 2 * 2;
            float base = bases[place % 2];
            a[place] = pack_bf16(exp2_fast(pair[0] - base), exp2_fast(pair[1] - base));
            // What is divided by is what is added below: rounded weights.
            part.softmax[place % 2].sum += low_half(a[place]) + high_half(a[place]);
        }
        UNROLL
        for (u32 n = 0; n < H::COLUMNS / 8; n += 2) {
            u32 b[4];
            load_matrices_transposed(b, v + (of_value ^ n * 16) + key * H::COLUMNS * 2);
            multiply_matrices(part.sums[n], a, b[0], b[1]);
            multiply_matrices(part.sums[n + 1], a, b[2], b[3]);
        }
    }
}

// Asks for a tile of K (which 0) or of V (1), WIDTH columns from `first` on; behind `end` there are zeros.
template <typename H, u32 WIDTH>
DEVICE void copy_tile(const AttendArgs& args, const u64* pages, u8* to, u32 which, u32 first, u32 tile, u32 end) {
    constexpr u32 CHUNKS = WIDTH / 8, STEP = QUERIES_BF16 * 2 / CHUNKS;
    u32 key = thread() / CHUNKS, chunk = thread() % CHUNKS, column = first + chunk * 8;
    if (column >= args.store.head_dim) end = 0;
    UNROLL
    for (u32 start = 0; start < H::KEYS; start += PAGE) {
        u32 position = tile * H::KEYS + start;
        const bf16* page = head_of<bf16>(args, pages[position / PAGE % (2 * SPAN / PAGE)], which, block_y());
        const bf16* from = page + key * args.store.head_dim + column;
        UNROLL
        for (u32 further = key; further < key + PAGE; further += STEP) {
            copy_async_16(to + chunk_place<WIDTH>(start + further, chunk), from, position + further < end);
            from += STEP * args.store.head_dim;
        }
    }
}

// Asks for the K and V of a tile of keys.
template <typename H>
DEVICE void copy_keys(const AttendArgs& args, const Shelf<H>& shelf, u32 tile, u32 end) {
    u8* to = shelf.keys + tile % 2 * (H::K_TILE + H::V_TILE);
    u32 first = block_x() % H::PARTS * H::COLUMNS;
    copy_tile<H, H::WIDTH>(args, shelf.pages, to, 0, 0, tile, end);
    copy_tile<H, H::COLUMNS>(args, shelf.pages, to + H::K_TILE, 1, first, tile, end);
}

// A query of the block, by its number.
struct Query {
    u32 index;
    u32 head;
    bool valid;
};

template <typename H>
DEVICE Query query_of(const AttendArgs& args, u32 number) {
    u32 group = args.heads / args.store.kv_heads, query = block_x() / H::PARTS * QUERIES_BF16 + number;
    return {query / group, block_y() * group + query % group, query / group < *at<const u32>(args.list.count)};
}

// Segment of a query that is valid.
template <typename H>
DEVICE u32 segment_of_query(const AttendArgs& args, u32 number) {
    return at<const u32>(args.segment_of)[at<const u32>(args.list.rows)[query_of<H>(args, number).index]];
}

// Segment of the block's last query.
template <typename H>
DEVICE u32 last_segment(const AttendArgs& args) {
    u32 queries = *at<const u32>(args.list.count) * (args.heads / args.store.kv_heads);
    return segment_of_query<H>(args, smaller(QUERIES_BF16, queries - block_x() / H::PARTS * QUERIES_BF16) - 1);
}

// Keys that a query sees in a segment: none if it is of another one.
template <typename H>
DEVICE u32 limit_in(const AttendArgs& args, u32 number, u32 segment) {
    Query query = query_of<H>(args, number);
    if (!query.valid || segment_of_query<H>(args, number) != segment) return 0;
    return at<const u32>(args.limits)[at<const u32>(args.list.rows)[query.index]];
}

// Divides the sums of a thread's rows that the segment has, and stores them.
template <typename H>
DEVICE void store_rows(const AttendArgs& args, const Part<H>& part, const Shelf<H>& shelf) {
    UNROLL
    for (u32 half = 0; half < 2; ++half) {
        Query query = query_of<H>(args, warp() * 16 + lane() / 4 + half * 8);
        if (shelf.limit(half) == 0) continue;
        u32 column = block_x() % H::PARTS * H::COLUMNS + lane() % 4 * 2;
        u64 row = static_cast<u64>(query.index) * args.stride + query.head * args.store.head_dim + column;
        float factor = 1.0f / part.softmax[half].sum;
        UNROLL
        for (u32 n = 0; n < H::COLUMNS / 8; ++n) {
            u32 pair = pack_bf16(part.sums[n][half * 2] * factor, part.sums[n][half * 2 + 1] * factor);
            if (column + n * 8 < args.store.head_dim) *at<u32>(args.out + (row + n * 8) * 2) = pair;
        }
    }
}

// Leaves a span's sums of a thread's rows that see keys of it.
template <typename H>
DEVICE void store_span(const AttendArgs& args, const Part<H>& part, const Shelf<H>& shelf, u32 span) {
    u32 head_dim = args.store.head_dim, column = block_x() % H::PARTS * H::COLUMNS + lane() % 4 * 2;
    UNROLL
    for (u32 half = 0; half < 2; ++half) {
        Query query = query_of<H>(args, warp() * 16 + lane() / 4 + half * 8);
        if (shelf.limit(half) <= span * SPAN) continue;
        float* partial = partial_of(args, query.index, query.head, span);
        UNROLL
        for (u32 n = 0; n < H::COLUMNS / 8; ++n) {
            if (column + n * 8 >= head_dim) continue;
            Floats2 pair = {{part.sums[n][half * 2], part.sums[n][half * 2 + 1]}};
            *reinterpret_cast<Floats2*>(partial + column + n * 8) = pair;
        }
        if (column == 0) {
            partial[head_dim] = part.softmax[half].sum;
            partial[head_dim + 1] = part.softmax[half].largest;
        }
    }
}

// Runs the block's queries that are of one segment over keys from tile `first` to position `end`.
template <typename H, bool NARROW>
DEVICE void run_segment(const AttendArgs& args, const Shelf<H>& shelf, const SegmentRows& segment, u32 first, u32 end) {
    constexpr u32 PAGES = SPAN / PAGE;
    // Keys that this warp sees: the same for all lanes.
    u32 seen = larger(shelf.limit(0), shelf.limit(1));
    UNROLL
    for (u32 mask = 4; mask < 32; mask *= 2) seen = larger(seen, shuffle_xor(seen, mask));
    if (thread() < PAGES) {
        u32 page = first * H::KEYS / PAGE + thread();
        shelf.pages[page % (2 * PAGES)] = page_at(args, segment, page * PAGE);
    }
    sync_block();
    copy_keys<H>(args, shelf, first, end);
    end_copy_group();
    Part<H> part, total;
    part.begin();
    if (!NARROW) total.begin();
    u32 last = ceiling(end, H::KEYS) - 1;
    float scale = Exponent<bf16>::scale(args.scale);
    ROLLED
    for (u32 tile = first; tile <= last; ++tile) {
        if (tile < last) copy_keys<H>(args, shelf, tile + 1, end);
        end_copy_group();
        wait_copies<1>();
        sync_block();
        if (tile * H::KEYS < seen) take_keys<H>(part, shelf, tile, scale);
        if (!NARROW && tile % H::TILES == 0 && thread() < PAGES) {
            u32 page = tile * H::KEYS / PAGE + PAGES + thread();
            shelf.pages[page % (2 * PAGES)] = page_at(args, segment, page * PAGE);
        }
        sync_block();
        if (tile != last && (tile + 1) % H::TILES != 0) continue;
        UNROLL
        for (u32 half = 0; half < 2; ++half) {
            float& sum = part.softmax[half].sum;
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
        }
        if (NARROW) {
            store_span<H>(args, part, shelf, tile / H::TILES);
        } else {
            UNROLL
            for (u32 half = 0; half < 2; ++half) {
                float own, others;
                total.softmax[half].join(part.softmax[half], own, others);
                UNROLL
                for (u32 n = 0; n < H::COLUMNS / 8; ++n) {
                    UNROLL
                    for (u32 of = half * 2; of < half * 2 + 2; ++of) {
                        total.sums[n][of] = multiply_add(part.sums[n][of], others, total.sums[n][of] * own);
                    }
                }
            }
            part.begin();
        }
    }
    wait_copies<0>();
    if (!NARROW) store_rows<H>(args, total, shelf);
}

template <u32 WIDTH, bool NARROW>
DEVICE void attend(const AttendArgs& args) {
    typedef Heads<WIDTH> H;
    SHARED(u64, pages, 2 * SPAN / PAGE);
    SHARED(u32, limits, QUERIES_BF16);
    Shelf<H> shelf = {dynamic_shared(), dynamic_shared() + QUERIES_BF16 * WIDTH * 2, pages, limits};
    if (!query_of<H>(args, 0).valid) return;
    const u32* rows = at<const u32>(args.list.rows);
    constexpr u32 CHUNKS = WIDTH / 8, STEP = QUERIES_BF16 * 2 / CHUNKS;
    u32 chunk = thread() % CHUNKS;
    UNROLL
    for (u32 further = 0; further < QUERIES_BF16; further += STEP) {
        u32 number = further + thread() / CHUNKS;
        Query query = query_of<H>(args, number);
        bool valid = query.valid && chunk * 8 < args.store.head_dim;
        u64 place = (static_cast<u64>(valid ? rows[query.index] : 0) * args.heads + query.head) * args.store.head_dim;
        const bf16* from = at<const bf16>(args.queries) + place + chunk * 8;
        copy_async_16(shelf.queries + chunk_place<WIDTH>(number, chunk), from, valid);
    }
    if (!NARROW && thread() < QUERIES_BF16 && block_x() % H::PARTS == 0) {
        Query query = query_of<H>(args, thread());
        if (query.valid && query.head == 0) pad_row<bf16>(args, query.index, 0, 1);
    }
    // Rows are ascending, and so are their segments. Little is kept from one to the next: registers are for the sums.
    for (u32 segment = segment_of_query<H>(args, 0); segment <= last_segment<H>(args); ++segment) {
        sync_block();
        if (thread() < QUERIES_BF16) limits[thread()] = limit_in<H>(args, thread(), segment);
        sync_block();
        u32 end = larger(limits[lane()], limits[lane() + 32]);
        UNROLL
        for (u32 mask = 16; mask > 0; mask /= 2) end = larger(end, shuffle_xor(end, mask));
        u32 start = NARROW ? block_z() * SPAN : 0;
        if (NARROW) end = smaller(end, start + SPAN);
        if (end <= start) continue;
        SegmentRows place = at<const SegmentRows>(args.segments)[segment];
        run_segment<H, NARROW>(args, shelf, place, start / H::KEYS, end);
    }
    // The queries' own copies, where no segment had keys of this span: nobody leaves while they are under way.
    end_copy_group();
    wait_copies<0>();
}

#define ATTEND(width, blocks)                                                                                          \
    KERNEL(attend_bf16_narrow_##width, AttendArgs, QUERIES_BF16 * 2, blocks, attend<width, true>)                      \
    KERNEL(attend_bf16_wide_##width, AttendArgs, QUERIES_BF16 * 2, blocks, attend<width, false>)
ATTEND(32, 2)
ATTEND(64, 2)
ATTEND(128, 2)
ATTEND(256, 2)
