// Layers that compute some of the rows: increments of the others, and the choice of the rows that have drifted most.

DEVICE void mark_rows(const MarkArgs& args) {
    u32* flags = at<u32>(args.flags);
    u32 live = *at<u32>(args.live), count = *at<u32>(args.list.count);
    for (u32 row = thread(); row < live; row += threads()) flags[row] = 0;
    sync_block();
    for (u32 index = thread(); index < count; index += threads()) flags[at<u32>(args.list.rows)[index]] = 1;
}

KERNEL(mark, MarkArgs, 1024, 1, mark_rows)

// A row beside its increment; both null if there is nothing to do.
struct Pair {
    float* row;
    float* increment;
};

// The block's row, if its mark is the wanted one and its page has increments.
DEVICE Pair marked_pair(const IncrementArgs& args, u32 wanted) {
    u32 index = block_x();
    if (index >= *at<u32>(args.list.count)) return {nullptr, nullptr};
    u32 row = at<u32>(args.list.rows)[index], hidden = args.store.hidden;
    if (at<u32>(args.flags)[row] != wanted) return {nullptr, nullptr};
    float* increment = stored_row(args.store.increments, hidden, args.layer, at<u32>(args.slots)[row]);
    return {increment ? at<float>(args.stream) + u64(row) * hidden : nullptr, increment};
}

DEVICE void hold_row(const IncrementArgs& args) {
    Pair pair = marked_pair(args, 1);
    if (pair.row == nullptr) return;
    for (u32 i = thread(); i < args.store.hidden; i += threads()) pair.increment[i] = -pair.row[i];
}

DEVICE void settle_held_row(const IncrementArgs& args) {
    Pair pair = marked_pair(args, 1);
    if (pair.row == nullptr) return;
    for (u32 i = thread(); i < args.store.hidden; i += threads()) pair.increment[i] += pair.row[i];
}

DEVICE void settle_other_row(const IncrementArgs& args) {
    Pair pair = marked_pair(args, 0);
    if (pair.row == nullptr) return;
    for (u32 i = thread(); i < args.store.hidden; i += threads()) pair.row[i] += pair.increment[i];
}

KERNEL(hold, IncrementArgs, 256, 1, hold_row)
KERNEL(settle_held, IncrementArgs, 256, 1, settle_held_row)
KERNEL(settle_rest, IncrementArgs, 256, 1, settle_other_row)

DEVICE void roll_probe(const RollArgs& args) {
    if (block_x() >= *at<u32>(args.count)) return;
    Probe probe = at<Probe>(args.probes)[block_x()];
    if (!probe.random) return;
    u64 key = mixed((probe.key ^ args.layer * GOLDEN) + GOLDEN);
    for (u32 place = probe.first + thread(); place < probe.first + probe.rows; place += threads()) {
        u64 position = at<u32>(args.positions)[at<u32>(args.probed)[place]];
        // 53 bits are exact, and more than enough to tell rows apart.
        at<double>(args.scores)[place] = double(mixed(key + mixed(position + GOLDEN) + GOLDEN) >> 11);
    }
}

KERNEL(roll, RollArgs, 256, 1, roll_probe)

template <typename T>
DEVICE void compare_row(const CompareArgs& args) {
    SHARED(float, sums, 32);
    u32 index = block_x();
    if (index >= *at<u32>(args.list.count)) return;
    u32 slot = at<u32>(args.slots)[at<u32>(args.list.rows)[index]];
    u32 head_dim = args.store.head_dim, width = args.store.kv_heads * head_dim;
    const float* fresh = at<float>(args.fresh) + u64(index) * width;
    float product = 0.0f, fresh_square = 0.0f, stored_square = 0.0f;
    for (u32 i = thread(); i < width; i += threads()) {
        float a = fresh[i];
        float b = widen(stored_head<T>(args.store, args.layer, args.value, slot, i / head_dim)[i % head_dim]);
        product += a * b;
        fresh_square += a * a;
        stored_square += b * b;
    }
    product = sum_block(product, sums);
    float fresh_norm = larger(sqrtf(sum_block(fresh_square, sums)), 1e-8f);
    float stored_norm = larger(sqrtf(sum_block(stored_square, sums)), 1e-8f);
    float cosine = product / (fresh_norm * stored_norm);
    if (thread() == 0) at<double>(args.scores)[at<u32>(args.places)[index]] = double(cosine);
}

KERNEL(compare_f32, CompareArgs, 128, 1, compare_row<float>)
KERNEL(compare_bf16, CompareArgs, 128, 1, compare_row<bf16>)

// Bits of a score that are told apart at once: a bin for each thread.
#define DIGIT_BITS 10
#define DIGITS (1 << DIGIT_BITS)

struct ChooseShared {
    u32 bins[DIGITS];
    u32 sums[32];
    u32 digit;
    u32 left;
};

// The lowest of some scores as integers: all below `limit`, and the first `ties` that are equal to it.
struct Lowest {
    u64 limit;
    u32 ties;
};

// Counts the scores that agree with `found` from bit `above` on, by their `width` bits below.
DEVICE void count_digits(const double* scores, u32 count, u64 found, u32 above, u32 width, u32* bins) {
    bins[thread()] = 0;
    sync_block();
    for (u32 i = thread(); i < count; i += threads()) {
        u64 score = ordered(scores[i]);
        bool agrees = above == 64 || score >> above == found >> above;
        if (agrees) atomic_add(&bins[score >> (above - width) & ((1u << width) - 1)], 1u);
    }
    sync_block();
}

// Finds the score of rank `keep`, in 1..=count, digit by digit from the highest.
DEVICE Lowest find_lowest(const double* scores, u32 count, u32 keep, ChooseShared& shared) {
    u64 found = 0;
    for (u32 above = 64, left = keep;;) {
        u32 width = smaller(above, DIGIT_BITS), low = above - width;
        count_digits(scores, count, found, above, width, shared.bins);
        u32 own = shared.bins[thread()], all;
        u32 before = sum_before(own, shared.sums, &all);
        if (before < left && before + own >= left) {
            shared.digit = thread();
            shared.left = left - before;
        }
        sync_block();
        u32 digit = shared.digit;
        left = shared.left;
        bool whole = shared.bins[digit] == left;
        sync_block();
        found |= u64(digit) << low;
        // All that begin like this are kept, whatever follows.
        if (whole || low == 0) return {found | ((u64(1) << low) - 1), left};
        above = low;
    }
}

// Marks the chosen rows of a probe. Its rows ascend: the first of several equals are the lowest rows.
DEVICE void mark_lowest(const ChooseArgs& args, const Probe& probe, ChooseShared& shared) {
    const u32* rows = at<u32>(args.probed) + probe.first;
    const double* scores = at<double>(args.scores) + probe.first;
    u32 keep = smaller(probe.keep, probe.rows);
    if (keep == 0) return;
    Lowest lowest = find_lowest(scores, probe.rows, keep, shared);
    u32 ties = 0;
    for (u32 first = 0; first < probe.rows; first += threads()) {
        u32 i = first + thread(), all;
        u64 score = i < probe.rows ? ordered(scores[i]) : 0;
        u32 equal = i < probe.rows && score == lowest.limit;
        u32 rank = ties + sum_before(equal, shared.sums, &all);
        bool chosen = i < probe.rows && (score < lowest.limit || (equal && rank < lowest.ties));
        if (chosen) at<u32>(args.flags)[rows[i]] = 1;
        ties += all;
    }
}

// Lists the marked rows, ascending.
DEVICE void list_marked(const u32* flags, u32 live, const List& list, u32* sums) {
    u32 listed = 0;
    for (u32 first = 0; first < live; first += threads()) {
        u32 row = first + thread(), all;
        u32 chosen = row < live ? flags[row] : 0;
        u32 place = listed + sum_before(chosen, sums, &all);
        if (chosen) at<u32>(list.rows)[place] = row;
        listed += all;
    }
    if (thread() == 0) *at<u32>(list.count) = listed;
}

// As many rows are listed as the launch counts: no row is both fixed and probed, or either twice, which is checked when
// a launch is taken over, and of each probe exactly as many are marked as it keeps.
DEVICE void choose_rows(const ChooseArgs& args) {
    SHARED(ChooseShared, shared, 1);
    mark_rows({args.fixed, args.live, args.flags});
    u32 probes = *at<u32>(args.count);
    for (u32 probe = 0; probe < probes; ++probe) mark_lowest(args, at<Probe>(args.probes)[probe], *shared);
    sync_block();
    list_marked(at<u32>(args.flags), *at<u32>(args.live), args.computed, shared->sums);
}

KERNEL(choose, ChooseArgs, DIGITS, 1, choose_rows)
