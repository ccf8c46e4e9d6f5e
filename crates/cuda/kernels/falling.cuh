// Tokens in falling order: by logit, ties by id. What is cut off such an order, by number or by probability, is found
// without sorting a vocabulary: tokens are counted into bins by their distance from the best, and only the bin that the
// cut goes through is sorted.
//
// Numbers of tokens and their weights are summed as integers: the order of threads has no influence.
#pragma once

// Loads of a thread that are under way at once.
#define FETCHED 4
// A multiple of all numbers of threads: each has as many bins.
#define BINS 1024
// Distances below 2^-8 share the first bin; each power of two above has 32 bins.
#define BIN_BITS 5
#define FIRST_BIN ((127 - 8) << BIN_BITS)
// Tokens that are sorted in shared memory.
#define SORTED_NEAR 2048
// The weight of the best token, as an integer: 2^44, so that those of 2^20 tokens have room.
#define WHOLE 17592186044416.0f
// The place behind all tokens.
#define EVERYTHING (~0ull)

// A row of logits.
struct Row {
    float* logits;
    u32 vocabulary;
    // Room for the vocabulary.
    u64* scratch;
};

struct FallingShared {
    u64 bins[BINS];
    u64 list[SORTED_NEAR];
    u64 sums[32];
    u64 before;
    u64 last;
    u32 bin;
    u32 listed;
};

// `exp(x)`, x not above 0, to 22 bits of what weighs something.
DEVICE float weight_of(float x) { return exp2_fast(x * 1.44269504f); }

// A logit that is not a number counts as minus infinity, a negative zero as zero.
DEVICE float clean(float logit) { return logit > -INFINITY_F32 ? logit + 0.0f : -INFINITY_F32; }

// Shows a thread its tokens, ascending, whatever the other threads do.
template <typename Look>
DEVICE void each_token(const Row& row, Look look) {
    u32 token = thread(), step = threads();
    for (; token + (FETCHED - 1) * step < row.vocabulary; token += FETCHED * step) {
        float logits[FETCHED];
        UNROLL
        for (u32 i = 0; i < FETCHED; ++i) logits[i] = row.logits[token + i * step];
        UNROLL
        for (u32 i = 0; i < FETCHED; ++i) look(token + i * step, clean(logits[i]));
    }
    for (; token < row.vocabulary; token += step) look(token, clean(row.logits[token]));
}

// A token's place in falling order: the lower, the better.
DEVICE u64 place_of(u32 token, float logit) { return u64(~ordered(logit)) << 32 | token; }
DEVICE u32 token_at(u64 place) { return u32(place); }
DEVICE float logit_at(u64 place) { return unordered(~u32(place >> 32)); }

DEVICE bool is_up_to(u64 limit, u32 token, float logit) {
    return limit == EVERYTHING || place_of(token, logit) <= limit;
}

// The bin of a logit; it never falls as logits do.
DEVICE u32 bin_of(float logit, float best) {
    if (logit == -INFINITY_F32) return BINS - 1;
    float distance = best - logit;
    if (!(distance > 0.0f)) return 0;
    u32 bin = bits_of(distance) >> (23 - BIN_BITS);
    return bin < FIRST_BIN ? 0 : smaller(bin - FIRST_BIN, BINS - 1);
}

// Where falling order is cut: behind the last token before which there is no more than so much.
struct Cut {
    // Of the tokens up to this place.
    u64 limit;
    // Whether tokens that weigh nothing belong to the order.
    bool weightless;
    // Above 0: weights `exp((logit - best) * inverse)` are summed, and `share` is a part of the sum of all. Else tokens
    // are counted, and `most` is a number of them.
    float inverse;
    double share;
    u64 most;
};

DEVICE bool is_part(const Cut& cut, u32 token, float logit) {
    return (cut.weightless || logit > -INFINITY_F32) && is_up_to(cut.limit, token, logit);
}

DEVICE u64 mass_of(const Cut& cut, float logit, float best) {
    return cut.inverse > 0.0f ? u64(weight_of((logit - best) * cut.inverse) * WHOLE) : 1;
}

// Sums the masses of all bins.
DEVICE void fill_bins(const Row& row, const Cut& cut, float best, FallingShared& shared) {
    for (u32 bin = thread(); bin < BINS; bin += threads()) shared.bins[bin] = 0;
    if (thread() == 0) shared.bin = BINS;
    sync_block();
    each_token(row, [&](u32 token, float logit) {
        if (is_part(cut, token, logit)) atomic_add(&shared.bins[bin_of(logit, best)], mass_of(cut, logit, best));
    });
    sync_block();
}

// Finds the bin that the cut goes through, and returns how much may come before the last token. `shared.bin` is that
// bin, `BINS` if there are no tokens, and `shared.before` what comes before it.
DEVICE u64 find_bin(const Row& row, const Cut& cut, float best, FallingShared& shared) {
    fill_bins(row, cut, best, shared);
    u32 share = BINS / threads(), first = thread() * share;
    u64 own = 0, all;
    for (u32 bin = first; bin < first + share; ++bin) own += shared.bins[bin];
    u64 before = sum_before(own, shared.sums, &all);
    u64 most = cut.inverse > 0.0f ? u64(cut.share * double(all)) : cut.most;
    for (u32 bin = first; bin < first + share; ++bin) {
        u64 mass = shared.bins[bin];
        // Sums ascend: one bin alone begins within the cut and is the last to do so.
        bool last = before + mass > most || before + mass == all;
        if (mass > 0 && before <= most && last) {
            shared.bin = bin;
            shared.before = before;
        }
        before += mass;
    }
    sync_block();
    return most;
}

// Lists the places of the tokens of some bins in the row's scratch, in any order, and says how many they are.
DEVICE u32 gather(const Row& row, const Cut& cut, float best, u32 first, u32 last, FallingShared& shared) {
    if (thread() == 0) shared.listed = 0;
    sync_block();
    each_token(row, [&](u32 token, float logit) {
        u32 bin = bin_of(logit, best);
        bool wanted = first <= bin && bin <= last && is_part(cut, token, logit);
        if (wanted) row.scratch[atomic_add(&shared.listed, 1u)] = place_of(token, logit);
    });
    sync_block();
    return shared.listed;
}

DEVICE void exchange(u64* list, u32 low, u32 high) {
    u64 a = list[low], b = list[high];
    if (a <= b) return;
    list[low] = b;
    list[high] = a;
}

// Sorts a list, ascending. A network of exchanges between halves, the first of each merge from both ends inwards: what
// is beyond the list's end would always stay there, and is left out.
DEVICE void sort(u64* list, u32 count) {
    for (u32 size = 2; size / 2 < count; size *= 2) {
        u32 half = size / 2;
        for (u32 i = thread(); i / half * size < count; i += threads()) {
            u32 first = i / half * size, offset = i % half;
            if (first + size - 1 - offset < count) exchange(list, first + offset, first + size - 1 - offset);
        }
        sync_block();
        for (u32 step = half / 2; step > 0; step /= 2) {
            for (u32 i = thread(); i / step * 2 * step < count; i += threads()) {
                u32 low = i / step * 2 * step + i % step;
                if (low + step < count) exchange(list, low, low + step);
            }
            sync_block();
        }
    }
}

// Sorts what was gathered, and says where it stands.
DEVICE const u64* sorted(const Row& row, u32 count, FallingShared& shared) {
    if (count > SORTED_NEAR) {
        sort(row.scratch, count);
        return row.scratch;
    }
    for (u32 i = thread(); i < count; i += threads()) shared.list[i] = row.scratch[i];
    sync_block();
    sort(shared.list, count);
    return shared.list;
}

// The place of the last token within a cut; `EVERYTHING` if there are no tokens.
DEVICE u64 last_within(const Row& row, const Cut& cut, float best, FallingShared& shared) {
    u64 most = find_bin(row, cut, best, shared), before = shared.before;
    u32 bin = shared.bin;
    if (bin == BINS) return EVERYTHING;
    u32 count = gather(row, cut, best, bin, bin, shared);
    const u64* list = sorted(row, count, shared);
    for (u32 first = 0; first < count; first += threads()) {
        u32 i = first + thread();
        u64 mass = i < count ? mass_of(cut, logit_at(list[i]), best) : 0, all;
        u64 ahead = before + sum_before(mass, shared.sums, &all);
        // As above, for single tokens.
        bool last = ahead + mass > most || i + 1 == count;
        if (i < count && ahead <= most && last) shared.last = list[i];
        before += all;
    }
    sync_block();
    return shared.last;
}

// Lists the `count` best tokens, weightless ones last, and says where; `listed` is how many of them there are.
DEVICE const u64* list_best(const Row& row, u32 count, float best, FallingShared& shared, u32* listed) {
    Cut cut = {EVERYTHING, true, 0.0f, 0.0, count - 1};
    find_bin(row, cut, best, shared);
    *listed = gather(row, cut, best, 0, shared.bin, shared);
    return sorted(row, *listed, shared);
}
