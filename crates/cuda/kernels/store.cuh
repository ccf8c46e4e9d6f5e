// Where things are in the pages of the store.
#pragma once

// Where a head of a slot's K or V begins.
template <typename T>
DEVICE T* stored_head(const Store& store, u32 layer, u32 value, u32 slot, u32 head) {
    u64 page = at<u64>(store.pages)[slot / PAGE];
    u64 heads = (u64(layer) * 2 + value) * store.kv_heads + head;
    return at<T>(page) + (heads * PAGE + slot % PAGE) * store.head_dim;
}

// Where the increment of a slot in a layer begins, or its difference, which is there once; null if its page has none.
// `pages` is one of the store's lists of addresses.
DEVICE float* stored_row(u64 pages, u32 hidden, u32 layer, u32 slot) {
    float* page = at<float>(at<u64>(pages)[slot / PAGE]);
    return page ? page + (u64(layer) * PAGE + slot % PAGE) * hidden : nullptr;
}
