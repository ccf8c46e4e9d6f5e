// Kernels that show what the primitives do, and what goes wrong: for the tests of the emulator.

struct TrialArgs {
    u64 left;
    u64 right;
    u64 out;
};

// out[0..32]: value of lane ^ 5; [32..64]: value of lane 7; [64..96]: ballot of odd values; [96..128]: sum of lanes.
DEVICE void lanes(const TrialArgs& args) {
    u32* out = at<u32>(args.out);
    u32 value = at<const u32>(args.left)[lane()];
    out[lane()] = shuffle_xor(value, 5);
    out[32 + lane()] = shuffle_from(value, 7);
    out[64 + lane()] = ballot(value % 2 == 1);
    out[96 + lane()] = sum_lanes(value);
}
KERNEL(trial_lanes, TrialArgs, 32, 1, lanes)

// out f32[16, 8] = left bf16[16, 16] * right: bf16[8, 16] as columns, or bf16[16, 8] as rows.
template <bool transposed>
DEVICE void product(const TrialArgs& args) {
    SHARED(bf16, left, 256);
    SHARED(bf16, right, 256);
    copy_async_16(left + lane() * 8, at<const bf16>(args.left) + lane() * 8, true);
    copy_async_16(right + lane() * 8, at<const bf16>(args.right) + lane() % 16 * 8, lane() < 16);
    end_copy_group();
    wait_copies<0>();
    sync_warp();
    u32 a[4], b[4];
    load_matrices(a, left + lane() % 16 * 16 + lane() / 16 * 8);
    if (transposed) {
        load_matrices_transposed(b, right + lane() * 8);
    } else {
        load_matrices(b, right + lane() % 8 * 16 + lane() / 8 % 2 * 8);
    }
    float sum[4] = {};
    multiply_matrices(sum, a, b[0], b[1]);
    float* out = at<float>(args.out);
    UNROLL
    for (u32 part = 0; part < 4; ++part) out[(lane() / 4 + part / 2 * 8) * 8 + lane() % 4 * 2 + part % 2] = sum[part];
}
KERNEL(trial_product, TrialArgs, 32, 1, product<false>)
KERNEL(trial_product_transposed, TrialArgs, 32, 1, product<true>)

// Each block turns its numbers of u32[grid, threads] round, through dynamic shared memory.
template <bool synchronised>
DEVICE void turn(const TrialArgs& args) {
    u32* memory = reinterpret_cast<u32*>(dynamic_shared());
    u32 base = block_x() * threads();
    memory[thread()] = at<const u32>(args.left)[base + thread()];
    if (synchronised) sync_block();
    at<u32>(args.out)[base + thread()] = memory[threads() - 1 - thread()];
}
KERNEL(trial_turn, TrialArgs, 128, 1, turn<true>)
KERNEL(trial_turn_unsynchronised, TrialArgs, 128, 1, turn<false>)

// Copies a warp's words without waiting for the copies.
DEVICE void hasty(const TrialArgs& args) {
    SHARED(u32, memory, 128);
    copy_async_16(memory + thread() * 4, at<const u32>(args.left) + thread() * 4, true);
    end_copy_group();
    at<u32>(args.out)[thread()] = memory[thread() * 4];
}
KERNEL(trial_hasty, TrialArgs, 32, 1, hasty)

// Half a warp waits for the block, the other half leaves.
DEVICE void diverge(const TrialArgs&) {
    if (lane() < 16) sync_block();
}
KERNEL(trial_diverge, TrialArgs, 64, 1, diverge)

// One warp leaves while the other waits.
DEVICE void desert(const TrialArgs&) {
    if (warp() == 1) sync_block();
}
KERNEL(trial_desert, TrialArgs, 64, 1, desert)

// Writes one word behind 32 of them, in global or in dynamic shared memory.
template <bool global>
DEVICE void overrun(const TrialArgs& args) {
    u32* memory = global ? at<u32>(args.out) : reinterpret_cast<u32*>(dynamic_shared());
    memory[thread() + 1] = thread();
}
KERNEL(trial_overrun, TrialArgs, 32, 1, overrun<true>)
KERNEL(trial_overrun_shared, TrialArgs, 32, 1, overrun<false>)

// Reads and writes words of a size one byte (or half a word) beside where they may lie: `right` is the distance.
template <typename Word, bool store>
DEVICE void misalign(const TrialArgs& args) {
    u64 distance = *at<const u64>(args.right);
    if (store) {
        *at<Word>(args.out + distance) = *at<const Word>(args.left);
    } else {
        *at<Word>(args.out) = *at<const Word>(args.left + distance);
    }
}
KERNEL(trial_load_2, TrialArgs, 32, 1, misalign<u16, false>)
KERNEL(trial_load_4, TrialArgs, 32, 1, misalign<float, false>)
KERNEL(trial_load_8, TrialArgs, 32, 1, misalign<Words2, false>)
KERNEL(trial_load_16, TrialArgs, 32, 1, misalign<Words4, false>)
KERNEL(trial_store_2, TrialArgs, 32, 1, misalign<u16, true>)
KERNEL(trial_store_4, TrialArgs, 32, 1, misalign<u32, true>)
KERNEL(trial_store_8, TrialArgs, 32, 1, misalign<u64, true>)
KERNEL(trial_store_16, TrialArgs, 32, 1, misalign<Floats4, true>)

// Asks for a copy of 4, 8 or 16 bytes to shared memory from so far behind `left`, or to so far behind shared memory.
template <u32 BYTES, bool to>
DEVICE void miscopy(const TrialArgs& args) {
    u64 distance = *at<const u64>(args.right);
    u8* target = dynamic_shared() + (to ? distance : 0);
    const u8* source = at<const u8>(args.left) + (to ? 0 : distance);
    if (BYTES == 16) copy_async_16(target, source, true);
    if (BYTES == 8) copy_async_8(target, source, true);
    if (BYTES == 4) copy_async_4(target, source, true);
    end_copy_group();
    wait_copies<0>();
}
KERNEL(trial_copy_from_4, TrialArgs, 32, 1, miscopy<4, false>)
KERNEL(trial_copy_from_8, TrialArgs, 32, 1, miscopy<8, false>)
KERNEL(trial_copy_from_16, TrialArgs, 32, 1, miscopy<16, false>)
KERNEL(trial_copy_to_4, TrialArgs, 32, 1, miscopy<4, true>)
KERNEL(trial_copy_to_8, TrialArgs, 32, 1, miscopy<8, true>)
KERNEL(trial_copy_to_16, TrialArgs, 32, 1, miscopy<16, true>)

// Loads matrices whose rows begin so far behind shared memory.
DEVICE void misload(const TrialArgs& args) {
    u32 words[4];
    load_matrices(words, dynamic_shared() + lane() * 16 + *at<const u64>(args.right));
    at<u32>(args.out)[lane()] = words[0] & 0;
}
KERNEL(trial_matrices_16, TrialArgs, 32, 1, misload)
