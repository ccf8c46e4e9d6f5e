// The head: its input rows, and what is asked of rows of logits.
//
// A block answers a row. Where no more is asked than a token, its probability, margin and entropy, logits are read once,
// drawn or not. Tokens that are forbidden and muted are struck out of them first, forbidden ones once their shares are
// known, muted ones as soon as nothing is asked any more in which they have a say.

// How a row is blended: `row + scale * (row - other)` behind the norm.
struct Blend {
    float scale;
    // The other row and its norm's factor; null if the difference is a stored one, or there is none.
    const float* other;
    float other_scale;
    // The stored difference, or null.
    float* difference;
};

DEVICE Blend blend_of(const HeadInputArgs& args, const HeadRowData& data, float* sums) {
    Blend blend = {data.scale, nullptr, 0.0f, nullptr};
    if (!data.blended) return blend;
    if (data.other != NOBODY) {
        blend.other = at<float>(args.stream) + u64(data.other) * args.store.hidden;
        blend.other_scale = norm_scale(blend.other, args.store.hidden, args.epsilon, sums);
    }
    if (data.slot != NOBODY) blend.difference = stored_row(args.store.residuals, args.store.hidden, 0, data.slot);
    return blend;
}

DEVICE float blended(const Blend& blend, float value, float weight, u32 i) {
    if (blend.other == nullptr) return blend.difference ? value + blend.scale * blend.difference[i] : value;
    float apart = value - blend.other[i] * blend.other_scale * weight;
    if (blend.difference) blend.difference[i] = apart;
    return value + blend.scale * apart;
}

template <typename T>
DEVICE void input_row(const HeadInputArgs& args) {
    SHARED(float, sums, 32);
    u32 index = args.first + block_x(), hidden = args.store.hidden;
    if (index >= *at<u32>(args.count)) return;
    HeadRowData data = at<HeadRowData>(args.rows)[index];
    const float* row = at<float>(args.stream) + u64(data.row) * hidden;
    const float* weight = at<float>(args.weight);
    T* out = at<T>(args.out) + u64(block_x()) * args.stride;
    float scale = norm_scale(row, hidden, args.epsilon, sums);
    Blend blend = blend_of(args, data, sums);
    for (u32 i = thread(); i < hidden; i += threads()) {
        out[i] = narrow<T>(blended(blend, row[i] * scale * weight[i], weight[i], i));
    }
    for (u32 i = hidden + thread(); i < args.stride; i += threads()) out[i] = narrow<T>(0.0f);
}

KERNEL(head_input_f32, HeadInputArgs, 256, 1, input_row<float>)
KERNEL(head_input_bf16, HeadInputArgs, 256, 1, input_row<bf16>)

// What is known of some tokens: of the distribution `softmax(logit * inverse)`, and of those that may be predicted.
struct Statistics {
    // The largest logit of those that may be, its token (the lowest of several), the largest logit of the others of them.
    float best;
    u32 token;
    float second;
    // The largest logit of all.
    float base;
    // `sum exp((logit - base) * inverse)`; 0 if there is no finite logit.
    float sum;
    // `sum (logit - base) * exp((logit - base) * inverse)`, without what weighs nothing; never above 0.
    float moment;
};

DEVICE Statistics no_statistics() { return {-INFINITY_F32, NOBODY, -INFINITY_F32, -INFINITY_F32, 0.0f, 0.0f}; }

// The sums as they are for a base that is larger by `distance`.
DEVICE void rebase(Statistics& of, float distance, float inverse) {
    float weight = of.sum > 0.0f ? weight_of(-distance * inverse) : 0.0f;
    of.moment = weight > 0.0f ? (of.moment - distance * of.sum) * weight : 0.0f;
    of.sum = of.sum * weight;
}

// Adds a token's share; its logit is finite.
DEVICE void include_share(Statistics& of, float logit, float inverse) {
    if (logit > of.base) {
        rebase(of, logit - of.base, inverse);
        of.base = logit;
        of.sum += 1.0f;
        return;
    }
    float distance = logit - of.base, weight = weight_of(distance * inverse);
    of.sum += weight;
    of.moment += weight > 0.0f ? distance * weight : 0.0f;
}

// Adds a token that may be predicted, behind all others; its logit is finite.
DEVICE void include(Statistics& of, u32 token, float logit, float inverse) {
    include_share(of, logit, inverse);
    if (logit > of.best) {
        of.second = of.best;
        of.best = logit;
        of.token = token;
    } else {
        of.second = larger(of.second, logit);
    }
}

// Of two sets of tokens together; the same whichever comes first.
DEVICE Statistics both(const Statistics& a, const Statistics& b, float inverse) {
    bool a_leads = a.best > b.best || (a.best == b.best && a.token < b.token);
    Statistics high = a.base > b.base ? a : b, low = a.base > b.base ? b : a;
    if (low.sum > 0.0f) {
        rebase(low, high.base - low.base, inverse);
        high.sum += low.sum;
        high.moment += low.moment;
    }
    high.second = a_leads ? larger(a.second, b.best) : larger(b.second, a.best);
    high.best = a_leads ? a.best : b.best;
    high.token = a_leads ? a.token : b.token;
    return high;
}

DEVICE float probability(const Statistics& of, float logit, float inverse) {
    return of.sum > 0.0f ? weight_of((logit - of.base) * inverse) / of.sum : 0.0f;
}

// Whether there is a best logit, and it is a number.
DEVICE bool is_number(float best) { return best > -INFINITY_F32 && best < INFINITY_F32; }

DEVICE float no_number() { return INFINITY_F32 - INFINITY_F32; }

DEVICE float margin(const Statistics& of, float inverse) {
    return probability(of, of.best, inverse) - probability(of, of.second, inverse);
}

// `-sum p ln p` with `p = exp((logit - base) * inverse) / sum`, taken apart.
DEVICE float entropy(const Statistics& of, float inverse) {
    return of.sum > 0.0f ? logf(of.sum) - inverse * of.moment / of.sum : 0.0f;
}

// A token that may be the row's.
struct Winner {
    // Its logit, with noise if there is any.
    float score;
    u32 token;
    float logit;
    // Whether it weighs nothing.
    u32 muted;
};

DEVICE Winner no_winner() { return {-INFINITY_F32, NOBODY, -INFINITY_F32, 0}; }

DEVICE Winner better(const Winner& a, const Winner& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token) ? a : b;
}

DEVICE Statistics shuffle_xor(const Statistics& own, u32 mask) {
    return {shuffle_xor(own.best, mask), shuffle_xor(own.token, mask), shuffle_xor(own.second, mask),
            shuffle_xor(own.base, mask), shuffle_xor(own.sum, mask), shuffle_xor(own.moment, mask)};
}

DEVICE Winner shuffle_xor(const Winner& own, u32 mask) {
    return {shuffle_xor(own.score, mask), shuffle_xor(own.token, mask), shuffle_xor(own.logit, mask),
            shuffle_xor(own.muted, mask)};
}

template <typename V, typename Join>
DEVICE V join_lanes(V own, Join join) {
    UNROLL
    for (u32 mask = 16; mask > 0; mask /= 2) own = join(own, shuffle_xor(own, mask));
    return own;
}

// Puts the values of all threads together, for every thread, by one tree: of each warp, then of the warps.
template <typename V, typename Join>
DEVICE V join_block(V own, V none, V* shared, Join join) {
    own = join_lanes(own, join);
    if (lane() == 0) shared[warp()] = own;
    sync_block();
    own = join_lanes(lane() < warps() ? shared[lane()] : none, join);
    sync_block();
    return own;
}

// Tokens that are judged at once: as many as registers have room for.
#define JUDGED 4

struct HeadShared {
    FallingShared falling;
    Statistics statistics[32];
    Winner winners[32];
    u32 counts[JUDGED];
    // No less than this is the score of the row's winner, as an integer of the same order.
    u32 mark;
};

// How a row draws its token.
struct Draw {
    // 0: the most probable one.
    float temperature;
    u64 key;
    // The last place that may be drawn.
    u64 limit;
};

DEVICE u64 gumbel_bits(u64 key, u32 token) { return mixed(key + token * GOLDEN); }

// `-ln(-ln u)`, `u` being in (0, 1) what the upper 52 bits say.
DEVICE float gumbel_noise(u64 bits) {
    double uniform = (double(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0);
    return float(-log(-log(uniform)));
}

// No noise is larger: `-ln(-ln(1 - 2^-53))` is below it.
#define MOST_NOISE 37.0f

// Whether noise of these bits cannot lift a logit to the mark, as far as that is quick to see: it lifts by `t` if `1 - u`
// is at most `1 - exp(-exp(-t))`, which is at most `exp(-t)`.
DEVICE bool is_beyond(u64 bits, float scaled, float mark) {
    // More than all that is rounded: scores, the exponential, and `1 - u`, of which only the upper bits count.
    float slack = 1e-3f + fabsf(mark) * 1e-6f;
    float rest = float(u32(~bits >> 40)) * (1.0f / 16777216.0f);
    return rest > weight_of(scaled - mark + slack);
}

// Draws for a token, unless it is sure not to reach the row's mark. What a thread sees of the mark is chance, and decides
// nothing but how much is computed in vain.
DEVICE void draw_token(const Draw& draw, u32 token, float logit, u32* shared_mark, Winner& winner) {
    float scaled = logit / draw.temperature;
    float mark = unordered(*static_cast<volatile u32*>(shared_mark));
    if (scaled + MOST_NOISE < mark) return;
    u64 bits = gumbel_bits(draw.key, token);
    if (is_beyond(bits, scaled, mark)) return;
    float score = scaled + gumbel_noise(bits);
    winner = better({score, token, logit, 0}, winner);
    if (score > mark) atomic_max(shared_mark, ordered(score));
}

// Makes the tokens from `limit` on minus infinity.
DEVICE void strike_from(const Row& row, u32 limit) {
    u32 first = smaller(limit, row.vocabulary);
    for (u32 i = first + thread(); i < row.vocabulary; i += threads()) row.logits[i] = -INFINITY_F32;
}

// Makes tokens minus infinity, when all threads have come here.
DEVICE void strike(const Row& row, const u32* tokens, u32 count) {
    sync_block();
    for (u32 i = thread(); i < count; i += threads()) row.logits[tokens[i]] = -INFINITY_F32;
    sync_block();
}

// A request's tokens that may not be predicted: some by name, the others from `limit` on.
struct Barred {
    const u32* tokens;
    u32 count;
    u32 limit;
};

DEVICE bool is_barred(const Barred& barred, u32 token) {
    bool named = token >= barred.limit;
    for (u32 i = 0; i < barred.count; ++i) named |= barred.tokens[i] == token;
    return named;
}

// Makes tokens minus infinity that are muted and may not be predicted either: no distribution knows them.
DEVICE void strike_unknown(const Row& row, const Barred& barred, const u32* mute, u32 count) {
    for (u32 i = thread(); i < count; i += threads()) {
        if (is_barred(barred, mute[i])) row.logits[mute[i]] = -INFINITY_F32;
    }
    sync_block();
}

// Adds the shares of this thread's part of the barred tokens up to a place.
DEVICE Statistics barred_shares(const Row& row, const Barred& barred, float inverse, u64 limit) {
    Statistics own = no_statistics();
    auto add = [&](u32 token) {
        float logit = clean(row.logits[token]);
        if (logit > -INFINITY_F32 && is_up_to(limit, token, logit)) include_share(own, logit, inverse);
    };
    for (u32 i = thread(); i < barred.count; i += threads()) {
        if (barred.tokens[i] < barred.limit) add(barred.tokens[i]);
    }
    for (u32 token = smaller(barred.limit, row.vocabulary) + thread(); token < row.vocabulary; token += threads()) {
        add(token);
    }
    return own;
}

// Statistics of the tokens up to a place beside those that a thread has already, and this thread's winner if there is a
// draw.
DEVICE Statistics survey(const Row& row, float inverse, u64 limit, const Draw* draw, Statistics own, Winner& winner,
                         HeadShared& shared) {
    each_token(row, [&](u32 token, float logit) {
        if (logit == -INFINITY_F32 || !is_up_to(limit, token, logit)) return;
        include(own, token, logit, inverse);
        if (draw) draw_token(*draw, token, logit, &shared.mark, winner);
    });
    auto join = [&](const Statistics& a, const Statistics& b) { return both(a, b, inverse); };
    return join_block(own, no_statistics(), shared.statistics, join);
}

DEVICE Statistics survey_all(const Row& row, float inverse, const Statistics& own, HeadShared& shared) {
    Winner nobody = no_winner();
    return survey(row, inverse, EVERYTHING, nullptr, own, nobody, shared);
}

// The place of the best token that may be predicted; `EVERYTHING` if there is none.
DEVICE u64 first_allowed(const Row& row, const Barred& barred, HeadShared& shared) {
    Winner winner = no_winner();
    each_token(row, [&](u32 token, float logit) {
        if (logit > winner.score && !is_barred(barred, token)) winner = {logit, token, logit, 0};
    });
    winner = join_block(winner, no_winner(), shared.winners, better);
    return winner.token == NOBODY ? EVERYTHING : place_of(winner.token, winner.logit);
}

// This thread's winner among muted tokens, before they are struck out.
DEVICE Winner muted_winner(const Row& row, const Draw& draw, const u32* tokens, u32 count) {
    Winner winner = no_winner();
    for (u32 i = thread(); i < count; i += threads()) {
        u32 token = tokens[i];
        float logit = clean(row.logits[token]), score = logit;
        if (logit == -INFINITY_F32 || !is_up_to(draw.limit, token, logit)) continue;
        if (draw.temperature > 0.0f) {
            score = logit / draw.temperature + gumbel_noise(gumbel_bits(draw.key, token));
        }
        winner = better({score, token, logit, 1}, winner);
    }
    return winner;
}

// A judged token, as it is told.
struct Judged {
    u32 rank;
    float log_probability;
    float best_probability;
};

// Judges up to `JUDGED` tokens, whose logits are noted: a token's rank is the number of those before it in falling order.
DEVICE void judge_some(const Row& row, const Statistics& plain, const u32* tokens, u32 count, Judged* out,
                       HeadShared& shared) {
    u64 places[JUDGED];
    u32 ranks[JUDGED] = {};
    UNROLL
    for (u32 i = 0; i < JUDGED; ++i) places[i] = i < count ? place_of(tokens[i], clean(row.logits[tokens[i]])) : 0;
    if (thread() < JUDGED) shared.counts[thread()] = 0;
    sync_block();
    each_token(row, [&](u32 token, float logit) {
        u64 place = place_of(token, logit);
        UNROLL
        for (u32 i = 0; i < JUDGED; ++i) ranks[i] += place < places[i];
    });
    UNROLL
    for (u32 i = 0; i < JUDGED; ++i) {
        u32 rank = sum_lanes(ranks[i]);
        if (lane() == 0) atomic_add(&shared.counts[i], rank);
    }
    sync_block();
    if (thread() < count) {
        float logit = out[thread()].log_probability;
        bool weighs = logit > -INFINITY_F32;
        float log_probability = weighs ? (logit - plain.base) - logf(plain.sum) : -INFINITY_F32;
        if (!is_number(plain.base)) log_probability = no_number();
        out[thread()] = {shared.counts[thread()], log_probability, probability(plain, plain.best, 1.0f)};
    }
    sync_block();
}

// Notes the logits of tokens to judge, before any of them is struck out.
DEVICE void note_judged(const Row& row, const u32* tokens, u32 count, Judged* out) {
    for (u32 i = thread(); i < count; i += threads()) out[i].log_probability = clean(row.logits[tokens[i]]);
}

// Judges tokens, whose logits are noted, in the plain distribution; `barred` are the shares of what is struck out.
DEVICE void judge(const Row& row, const Statistics& barred, const u32* tokens, u32 count, Judged* out,
                  HeadShared& shared) {
    Statistics plain = survey_all(row, 1.0f, barred, shared);
    for (u32 first = 0; first < count; first += JUDGED) {
        judge_some(row, plain, tokens + first, smaller(count - first, JUDGED), out + first, shared);
    }
}

// Whether a filter has a say.
DEVICE bool is_filtered(const RequestData& request, u32 vocabulary) {
    bool counts = request.top_k > 0 && request.top_k < vocabulary, shares = request.top_p < 1.0f;
    bool reaches = request.reach > -INFINITY_F32;
    return (request.temperature > 0.0f || request.drawn) && (counts || shares || reaches);
}

// The last place that passes a filter: at least the first that may be predicted.
DEVICE u64 filtered_to(const Row& row, const RequestData& request, const Barred& barred, float inverse,
                       HeadShared& shared) {
    u64 first = first_allowed(row, barred, shared);
    float best = survey_all(row, 1.0f, no_statistics(), shared).best;
    u64 limit = EVERYTHING;
    if (request.top_k > 0 && request.top_k < row.vocabulary) {
        Cut cut = {EVERYTHING, false, 0.0f, 0.0, request.top_k - 1};
        // All that tie with the last pass too.
        limit = last_within(row, cut, best, shared.falling) | 0xffffffffu;
    }
    if (request.top_p < 1.0f) {
        u64 among = request.top_k_first ? limit : EVERYTHING;
        Cut cut = {among, false, inverse, double(larger(request.top_p, 0.0f)), 0};
        u64 last = last_within(row, cut, best, shared.falling);
        limit = last < limit ? last : limit;
    }
    if (request.reach > -INFINITY_F32) {
        u64 last = place_of(0xffffffffu, best + request.reach);
        limit = last < limit ? last : limit;
    }
    return first != EVERYTHING && limit < first ? first : limit;
}

// A token and its probability, as they are told.
struct Best {
    u32 token;
    float probability;
};

// Tells the best tokens; those behind `limit` have no probability.
DEVICE void tell_best(const Row& row, const Statistics& statistics, float inverse, u64 limit, u32 count, Best* out,
                      HeadShared& shared) {
    u32 listed;
    const u64* list = list_best(row, count, statistics.best, shared.falling, &listed);
    for (u32 i = thread(); i < count; i += threads()) {
        u64 place = i < listed ? list[i] : EVERYTHING;
        bool passes = i < listed && place <= limit;
        out[i] = {token_at(place), passes ? probability(statistics, logit_at(place), inverse) : 0.0f};
    }
}

DEVICE void answer_row(const HeadAnswerArgs& args) {
    SHARED(HeadShared, shared, 1);
    u32 index = args.first + block_x();
    if (index >= *at<u32>(args.count)) return;
    HeadRowData data = at<HeadRowData>(args.rows)[index];
    RequestData request = at<RequestData>(args.requests)[data.request];
    const u32* lists = at<u32>(args.lists);
    u64 start = u64(block_x()) * args.vocabulary;
    Row row = {at<float>(args.logits) + start, args.vocabulary, at<u64>(args.scratch) + start};
    Barred barred = {lists + request.forbid, request.forbidden, request.limit};
    const u32* judged = lists + data.judged;
    Judged* judgements = at<Judged>(args.judged) + data.judged;
    if (thread() == 0) shared->mark = ordered(-INFINITY_F32);
    strike_unknown(row, barred, lists + request.mute, request.muted);

    bool draws = request.temperature > 0.0f;
    float drawn_inverse = draws ? 1.0f / request.temperature : 1.0f, inverse = request.drawn ? drawn_inverse : 1.0f;
    u64 passing = EVERYTHING;
    if (is_filtered(request, row.vocabulary)) passing = filtered_to(row, request, barred, drawn_inverse, *shared);
    u64 limit = request.drawn ? passing : EVERYTHING;
    Statistics shares = barred_shares(row, barred, inverse, limit), plain_shares = no_statistics();
    if (request.judge_width > 0) {
        plain_shares = barred_shares(row, barred, 1.0f, EVERYTHING);
        note_judged(row, judged, request.judge_width, judgements);
    }
    sync_block();
    strike_from(row, request.limit);
    strike(row, lists + request.forbid, request.forbidden);
    if (request.judge_width > 0) judge(row, plain_shares, judged, request.judge_width, judgements, *shared);

    Draw draw = {draws ? request.temperature : 0.0f, data.key, passing};
    Winner winner = muted_winner(row, draw, lists + request.mute, request.muted);
    if (request.muted > 0) strike(row, lists + request.mute, request.muted);
    bool together = passing == limit;
    if (draws && !together) survey(row, drawn_inverse, passing, &draw, no_statistics(), winner, *shared);
    Statistics statistics = survey(row, inverse, limit, draws && together ? &draw : nullptr, shares, winner, *shared);
    if (!draws && statistics.token != NOBODY) {
        winner = better({statistics.best, statistics.token, statistics.best, 0}, winner);
    }
    winner = join_block(winner, no_winner(), shared->winners, better);

    if (thread() == 0) {
        at<u32>(args.tokens)[index] = winner.token == NOBODY ? 0 : winner.token;
        // No logit of the row is a number, or the best one is infinite: nothing was predicted.
        float confidence = winner.muted ? 0.0f : probability(statistics, winner.logit, inverse);
        at<float>(args.confidence)[index] = is_number(winner.logit) ? confidence : no_number();
        at<float>(args.margin)[index] = request.margin ? margin(statistics, inverse) : 0.0f;
        at<float>(args.entropy)[index] = request.entropy ? entropy(statistics, inverse) : 0.0f;
    }
    if (request.top > 0) {
        tell_best(row, statistics, inverse, limit, request.top, at<Best>(args.top) + data.top, *shared);
    }
}

KERNEL(head_answer, HeadAnswerArgs, 1024, 1, answer_row)
