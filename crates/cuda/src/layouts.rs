//! Layouts of the structures that kernels read, field by field: their twins in `kernels/arguments.cuh` are checked
//! against them.
//!
//! A kernel's parameter is bytes to the driver: a field that lies elsewhere than the kernel believes is a wrong address on a
//! card, and no error. Each module therefore asserts what stands here when it is compiled, by NVIDIA's compiler and for the
//! emulator alike.

use std::mem::offset_of;

use crate::{
    arguments::{
        AttendArgs, CeilingArgs, ChooseArgs, CompareArgs, CopyArgs, EmbedArgs, GemmArgs, GemmPart, HeadAnswerArgs,
        HeadInputArgs, HeadRowData, HeadsArgs, IncrementArgs, KeepArgs, List, MarkArgs, NormaliseArgs, Probe,
        RequestData, RollArgs, SegmentRows, Store,
    },
    gpu::Address,
};

/// A structure as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Name of the structure.
    pub name: &'static str,
    /// Bytes of all of it.
    pub bytes: usize,
    /// Alignment in bytes.
    pub alignment: usize,
    /// Fields of the structure, in their order.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Name and dimension of the twin's type: `u32`, or `GemmPart[3]`.
    pub twin: &'static str,
    /// Offset of the field, in bytes.
    pub offset: usize,
    /// Bytes of it.
    pub bytes: usize,
}

/// Types of fields, by their names in the twins.
trait Twin {
    const NAME: &'static str;
}

macro_rules! twins {
    ($($type:ty = $name:expr),* $(,)?) => {
        $(impl Twin for $type {
            const NAME: &'static str = $name;
        })*
    };
}

twins!(u32 = "u32", f32 = "float", u64 = "u64", Address = "u64", [GemmPart; 3] = "GemmPart[3]");

/// The field that `_get` gets.
const fn field<S, T: Twin>(name: &'static str, offset: usize, _get: fn(&S) -> &T) -> Field {
    Field { name, twin: T::NAME, offset, bytes: size_of::<T>() }
}

/// Lists structures, of which no field may be missing.
macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        $(
            twins!($name = stringify!($name));
            // Does not compile without all fields.
            const _: fn($name) = |$name { $($field: _),* }| ();
        )*

        /// All structures: those that kernels take, and those that lie in them or in the device's memory.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            bytes: size_of::<$name>(),
            alignment: align_of::<$name>(),
            fields: &[$(field(stringify!($field), offset_of!($name, $field), |of: &$name| &of.$field)),*],
        }),*];
    };
}

layouts! {
    List { rows, count }
    Store { pages, increments, residuals, layers, kv_heads, head_dim, hidden }
    EmbedArgs { table, ids, count, stream, hidden, unused }
    NormaliseArgs { list, stream, weight, out, hidden, stride, epsilon, unused }
    GemmPart { weight, scales, bias, out, columns, stride }
    GemmArgs { input, list, part, parts, depth, first, rows }
    HeadsArgs {
        list, projected, norm, cos, sin, positions, slots, out, store, heads, head_dim, half, epsilon, layer, target,
    }
    SegmentRows { first, end, table, entries }
    AttendArgs {
        list, segment_of, segments, tables, limits, queries, out, partial, store, heads, layer, stride, spans, scale,
        unused,
    }
    MarkArgs { list, live, flags }
    IncrementArgs { list, flags, slots, stream, store, layer, unused }
    Probe { first, rows, keep, random, key }
    RollArgs { probes, count, probed, positions, scores, layer, unused }
    CompareArgs { list, places, fresh, slots, scores, store, layer, value }
    ChooseArgs { fixed, probes, count, probed, scores, live, flags, computed }
    KeepArgs { copies, count, store, element, unused }
    CopyArgs { copies, count, store, element, unused }
    HeadRowData { row, request, key, other, slot, scale, blended, top, judged }
    RequestData {
        forbid, forbidden, mute, muted, temperature, top_k, top_p, reach, top_k_first, drawn, margin, entropy,
        top, judge_width, limit,
    }
    HeadInputArgs { rows, count, stream, weight, out, store, first, stride, epsilon, unused }
    HeadAnswerArgs {
        rows, count, requests, lists, logits, scratch, tokens, confidence, margin, entropy, top, judged, first,
        vocabulary,
    }
    CeilingArgs { memory, quads, out, rounds, unused }
}

impl Layout {
    /// Assertions of the twin's size, alignment, and of each field's type and place, as a text for either compiler. The
    /// prelude has what they need.
    pub(crate) fn assertions(&self) -> String {
        let Self { name, bytes, alignment, fields } = self;
        let mut text = format!(
            "static_assert(sizeof({name}) == {bytes} && alignof({name}) == {alignment}, \"the size of {name}\");\n"
        );
        for Field { name: field, twin, offset, bytes } in *fields {
            text.extend([
                format!("static_assert(OFFSET({name}, {field}) == {offset} && "),
                format!("sizeof({name}::{field}) == {bytes} && Same<decltype({name}::{field}), {twin}>::YES, "),
                format!("\"the place and type of {field} in {name}\");\n"),
            ]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        arguments::NAMES,
        emulator::{Emulator, Schedule},
        kernels::MODULES,
    };

    #[test]
    fn structures_are_listed_and_have_no_padding() {
        for name in NAMES {
            assert!(LAYOUTS.iter().any(|layout| layout.name == *name), "{name} is not listed");
        }
        for Layout { name, bytes, fields, alignment } in LAYOUTS {
            let mut end = 0;
            for field in *fields {
                assert_eq!(field.offset, end, "padding before {} of {name}", field.name);
                end += field.bytes;
            }
            assert_eq!((end, bytes % alignment), (*bytes, 0), "padding at the end of {name}");
        }
    }

    #[test]
    fn every_kernel_takes_a_structure_that_is_known_on_both_sides() {
        let gpu = Emulator::new(Schedule::Forward).unwrap();
        let mut taken = BTreeSet::new();
        for &kernel in MODULES.iter().copied().flatten().flat_map(|module| module.kernels) {
            let (name, bytes) = gpu.takes(kernel).unwrap();
            let layout = LAYOUTS.iter().find(|layout| layout.name == name);
            assert_eq!(layout.map(|layout| layout.bytes), Some(bytes), "{kernel} takes {name}");
            taken.insert(name);
        }
        assert_eq!(taken, NAMES.iter().map(ToString::to_string).collect(), "structures that no kernel takes");
    }
}
