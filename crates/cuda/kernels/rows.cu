// Embedding, norms and heads: what reads a row and writes a row.

// The row of the residual stream is the row of the table.
template <typename T>
DEVICE void embed_row(const EmbedArgs& args) {
    u32 row = block_x();
    if (row >= *at<u32>(args.count)) return;
    const T* from = at<T>(args.table) + u64(at<u32>(args.ids)[row]) * args.hidden;
    float* to = at<float>(args.stream) + u64(row) * args.hidden;
    for (u32 i = thread(); i < args.hidden; i += threads()) to[i] = widen(from[i]);
}

KERNEL(embed_f32, EmbedArgs, 256, 1, embed_row<float>)
KERNEL(embed_bf16, EmbedArgs, 256, 1, embed_row<bf16>)
KERNEL(embed_f16, EmbedArgs, 256, 1, embed_row<f16>)

template <typename T>
DEVICE void normalise_row(const NormaliseArgs& args) {
    SHARED(float, sums, 32);
    u32 index = block_x();
    if (index >= *at<u32>(args.list.count)) return;
    const float* row = at<float>(args.stream) + u64(at<u32>(args.list.rows)[index]) * args.hidden;
    const float* weight = at<float>(args.weight);
    T* out = at<T>(args.out) + u64(index) * args.stride;
    float scale = norm_scale(row, args.hidden, args.epsilon, sums);
    for (u32 i = thread(); i < args.stride; i += threads()) {
        out[i] = narrow<T>(i < args.hidden ? row[i] * scale * weight[i] : 0.0f);
    }
}

KERNEL(normalise_f32, NormaliseArgs, 256, 1, normalise_row<float>)
KERNEL(normalise_bf16, NormaliseArgs, 256, 1, normalise_row<bf16>)

// A head as it is projected, seen through its norm.
struct NormedHead {
    const float* values;
    // Null: no norm.
    const float* weight;
    float scale;
};

DEVICE NormedHead normed_head(const float* values, const HeadsArgs& args) {
    NormedHead head = {values, at<float>(args.norm), 1.0f};
    if (head.weight == nullptr) return head;
    float sum = 0.0f;
    for (u32 i = lane(); i < args.head_dim; i += 32) sum += values[i] * values[i];
    head.scale = 1.0f / sqrtf(sum_lanes(sum) / float(args.head_dim) + args.epsilon);
    return head;
}

DEVICE float element(const NormedHead& head, u32 i) {
    return head.weight ? head.values[i] * head.scale * head.weight[i] : head.values[i];
}

// Rounds to T, and keeps the number as Out.
template <typename T, typename Out>
DEVICE Out rounded(float value) {
    return narrow<Out>(widen(narrow<T>(value)));
}

// A warp finishes a head. `out` may be where it is read: what a lane writes no other lane reads any more.
template <typename T, typename Out>
DEVICE void finish_head(const HeadsArgs& args, const float* values, u32 position, Out* out) {
    NormedHead head = normed_head(values, args);
    const float* cos = at<float>(args.cos) + u64(position) * args.half;
    const float* sin = at<float>(args.sin) + u64(position) * args.half;
    for (u32 i = lane(); i < args.half; i += 32) {
        float low = element(head, i), high = element(head, i + args.half);
        out[i] = rounded<T, Out>(low * cos[i] - high * sin[i]);
        out[i + args.half] = rounded<T, Out>(high * cos[i] + low * sin[i]);
    }
    for (u32 i = 2 * args.half + lane(); i < args.head_dim; i += 32) out[i] = rounded<T, Out>(element(head, i));
}

template <typename T>
DEVICE void finish_heads(const HeadsArgs& args) {
    u32 index = block_x();
    if (index >= *at<u32>(args.list.count)) return;
    u32 row = at<u32>(args.list.rows)[index];
    u32 position = args.half ? at<u32>(args.positions)[row] : 0;
    for (u32 head = warp(); head < args.heads; head += warps()) {
        float* values = at<float>(args.projected) + (u64(index) * args.heads + head) * args.head_dim;
        if (args.target == IN_PLACE) {
            finish_head<T>(args, values, position, values);
        } else if (args.target == QUERIES) {
            T* out = at<T>(args.out) + (u64(row) * args.heads + head) * args.head_dim;
            finish_head<T>(args, values, position, out);
        } else {
            u32 slot = at<u32>(args.slots)[row];
            T* out = stored_head<T>(args.store, args.layer, args.target == VALUES, slot, head);
            finish_head<T>(args, values, position, out);
        }
    }
}

KERNEL(heads_f32, HeadsArgs, 128, 1, finish_heads<float>)
KERNEL(heads_bf16, HeadsArgs, 128, 1, finish_heads<bf16>)
