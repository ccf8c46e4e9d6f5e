use demask_tensor::PAGE;

use super::*;
use crate::{
    arguments::{CopyArgs, KeepArgs, Store},
    gpu::Address,
    kernels::trial::{Trial, emulators},
};

const LAYERS: usize = 3;
const KV_HEADS: usize = 5;

/// Pages as bytes on both sides: K and V, increments of some, differences of some.
struct Pages {
    kv: Vec<Vec<u8>>,
    increments: Vec<Option<Vec<u8>>>,
    residuals: Vec<Option<Vec<u8>>>,
    head: usize,
    row: usize,
}

impl Pages {
    /// Eight pages; the second half has no increments, every second no differences.
    fn new(head: usize, row: usize) -> Self {
        let bytes = |page: usize, seed: usize, count: usize| {
            (0..count).map(|i| (i * 31 + i / 251 + page * 17 + seed) as u8).collect::<Vec<u8>>()
        };
        Self {
            kv: (0..8).map(|page| bytes(page, 1, LAYERS * 2 * KV_HEADS * PAGE * head)).collect(),
            increments: (0..8).map(|page| (page < 4).then(|| bytes(page, 2, LAYERS * PAGE * row))).collect(),
            residuals: (0..8).map(|page| (page % 2 == 0).then(|| bytes(page, 3, PAGE * row))).collect(),
            head,
            row,
        }
    }

    /// The twin: a slot's bytes in all layers and heads.
    fn copy_slot(&mut self, from: usize, to: usize) {
        let ((from, from_at), (to, to_at)) = ((from / PAGE, from % PAGE), (to / PAGE, to % PAGE));
        for part in 0..LAYERS * 2 * KV_HEADS {
            let at = |offset: usize| (part * PAGE + offset) * self.head;
            let bytes = self.kv[from][at(from_at)..at(from_at + 1)].to_vec();
            self.kv[to][at(to_at)..at(to_at + 1)].copy_from_slice(&bytes);
        }
        for (rows, layers) in [(&mut self.increments, LAYERS), (&mut self.residuals, 1)] {
            for layer in 0..layers {
                let at = |offset: usize| (layer * PAGE + offset) * self.row;
                let Some(bytes) = rows[from].as_ref().map(|rows| rows[at(from_at)..at(from_at + 1)].to_vec()) else {
                    continue;
                };
                if let Some(rows) = &mut rows[to] {
                    rows[at(to_at)..at(to_at + 1)].copy_from_slice(&bytes);
                }
            }
        }
    }

    fn on(&self, table: &Trial<'_>) -> OnTable {
        let optional = |all: &[Option<Vec<u8>>]| {
            all.iter().map(|bytes| bytes.as_ref().map_or(Address::NULL, |bytes| table.put(bytes))).collect()
        };
        OnTable {
            kv: self.kv.iter().map(|bytes| table.put(bytes)).collect(),
            increments: optional(&self.increments),
            residuals: optional(&self.residuals),
        }
    }

    fn assert_on(&self, table: &Trial<'_>, on: &OnTable) {
        for page in 0..8 {
            assert!(table.take::<u8>(on.kv[page], self.kv[page].len()) == self.kv[page], "K and V of page {page}");
            for (expected, address, what) in [
                (&self.increments[page], on.increments[page], "increments"),
                (&self.residuals[page], on.residuals[page], "differences"),
            ] {
                if let Some(expected) = expected {
                    assert!(table.take::<u8>(address, expected.len()) == *expected, "{what} of page {page}");
                }
            }
        }
    }
}

/// Addresses of all pages.
struct OnTable {
    kv: Vec<Address>,
    increments: Vec<Address>,
    residuals: Vec<Address>,
}

impl OnTable {
    fn store(&self, table: &Trial<'_>, head_dim: usize, hidden: usize) -> Store {
        Store {
            pages: table.put(&self.kv),
            increments: table.put(&self.increments),
            residuals: table.put(&self.residuals),
            layers: LAYERS as u32,
            kv_heads: KV_HEADS as u32,
            head_dim: head_dim as u32,
            hidden: hidden as u32,
        }
    }
}

/// Widths of a head, bytes of its numbers, width of a row: whole pieces of sixteen bytes and not.
const WIDTHS: [(usize, usize, usize); 4] = [(8, 2, 24), (7, 2, 9), (64, 4, 300), (12, 4, 2)];

#[test]
fn slots_are_copied_in_every_layer() {
    let copies = [[3u32, 5 * 32 + 31], [33, 33], [32 + 31, 0], [6 * 32 + 1, 2 * 32 + 1], [3, 2 * 32 + 2], [9, 10]];
    for (head_dim, element, hidden) in WIDTHS {
        for count in [0, 1, copies.len()] {
            for table in emulators().each_ref().map(Trial) {
                let mut pages = Pages::new(head_dim * element, hidden * 4);
                let on = pages.on(&table);
                let store = on.store(&table, head_dim, hidden);
                let (places, number) = (table.put(&copies), table.put(&[count as u32]));
                let args = KeepArgs { copies: places, count: number, store, element: element as u32, unused: 0 };
                table.run(keep_slots(8, LAYERS), &args);
                copies[..count].iter().for_each(|&[from, to]| pages.copy_slot(from as usize, to as usize));
                pages.assert_on(&table, &on);
            }
        }
    }
}

#[test]
fn pages_are_copied_in_every_layer() {
    let copies = [[0u32, 5], [1, 2], [4, 6], [7, 7], [0, 3]];
    for (head_dim, element, hidden) in WIDTHS {
        for count in [0, 1, copies.len()] {
            for table in emulators().each_ref().map(Trial) {
                let mut pages = Pages::new(head_dim * element, hidden * 4);
                let on = pages.on(&table);
                let store = on.store(&table, head_dim, hidden);
                let (places, number) = (table.put(&copies), table.put(&[count as u32]));
                let args = CopyArgs { copies: places, count: number, store, element: element as u32, unused: 0 };
                table.run(copy_pages(6, LAYERS), &args);
                for &[from, to] in &copies[..count] {
                    for at in 0..PAGE {
                        pages.copy_slot(from as usize * PAGE + at, to as usize * PAGE + at);
                    }
                }
                pages.assert_on(&table, &on);
            }
        }
    }
}
