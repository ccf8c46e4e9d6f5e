// Copies of slots and of pages: in each layer K, V and increments, and once the differences; the latter two where both
// pages have them.

// Copies bytes by some of the block's threads, sixteen at a time where the count allows it: what is copied begins at a
// multiple of its own length.
DEVICE void copy_bytes(u64 to, u64 from, u64 bytes, u32 thread, u32 threads) {
    if (bytes % 16 == 0) {
        for (u64 i = thread; i < bytes / 16; i += threads) at_global<Words4>(to)[i] = at_global<Words4>(from)[i];
    } else {
        for (u64 i = thread; i < bytes / 2; i += threads) at_global<u16>(to)[i] = at_global<u16>(from)[i];
    }
}

// The same of rows of increments or differences by all threads, unless one of the two pages has none.
DEVICE void copy_rows(const Store& store, u64 pages, u32 layer, u32 to, u32 from, u32 rows) {
    float* target = stored_row(pages, store.hidden, layer, to), *source = stored_row(pages, store.hidden, layer, from);
    if (target && source)
        copy_bytes(u64(target), u64(source), u64(rows) * store.hidden * sizeof(float), thread(), threads());
}

DEVICE void keep_slot(const KeepArgs& args) {
    u32 index = block_x(), layer = block_y();
    if (index >= *at_global<u32>(args.count)) return;
    const Store& store = args.store;
    u32 from = at_global<u32>(args.copies)[2 * index], to = at_global<u32>(args.copies)[2 * index + 1];
    if (from == to) return;
    u64 page_to = at_global<u64>(store.pages)[to / PAGE], page_from = at_global<u64>(store.pages)[from / PAGE];
    u64 head = u64(store.head_dim) * args.element;
    for (u32 part = warp(); part < 2 * store.kv_heads; part += warps()) {
        u64 first = (u64(layer) * 2 * store.kv_heads + part) * PAGE;
        copy_bytes(page_to + (first + to % PAGE) * head, page_from + (first + from % PAGE) * head, head, lane(), 32);
    }
    copy_rows(store, store.increments, layer, to, from, 1);
    if (layer == 0) copy_rows(store, store.residuals, 0, to, from, 1);
}

KERNEL(keep_slots, KeepArgs, 128, 1, keep_slot)

DEVICE void copy_page(const CopyArgs& args) {
    u32 index = block_x(), layer = block_y();
    if (index >= *at_global<u32>(args.count)) return;
    const Store& store = args.store;
    u32 from = at_global<u32>(args.copies)[2 * index], to = at_global<u32>(args.copies)[2 * index + 1];
    if (from == to) return;
    u64 bytes = u64(2) * store.kv_heads * PAGE * store.head_dim * args.element, first = layer * bytes;
    copy_bytes(at_global<u64>(store.pages)[to] + first, at_global<u64>(store.pages)[from] + first, bytes, thread(), threads());
    copy_rows(store, store.increments, layer, to * PAGE, from * PAGE, PAGE);
    if (layer == 0) copy_rows(store, store.residuals, 0, to * PAGE, from * PAGE, PAGE);
}

KERNEL(copy_pages, CopyArgs, 256, 1, copy_page)
