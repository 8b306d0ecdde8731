//! Store geometry: identity of a store ([`StoreSpec`]), and the offset of every page in its arena file. Pure.
//!
//! ```text
//! group g ─► extent g / E ─► arena file, offset in it;    extent = layer 0: E slots │ layer 1: E slots │ ...
//! ```
//! A slot is a page payload rounded up to 4096 bytes. E groups share an extent. Attention reads the E pages of one
//! layer in an extent together, so they are one read of up to 256 KiB.
//!
//! Limits: 1024 layers, 64 MiB a page, 2^20 groups. No product below exceeds 2^63.

use crate::base::limits::{MAX_CONTEXT, MAX_LAYERS};
use crate::kv::store::error::StoreError;
use crate::kv::store::format::{ALIGN_BYTES, ENTRIES_OFFSET, ENTRY_HEAD_BYTES, PAGE_TOKENS, PageId, PageKind};

/// Maximum payload of a page.
pub const MAX_PAGE_BYTES: u64 = 64 << 20;
/// Target size of one read.
pub const RUN_BYTES: u64 = 256 << 10;
/// Maximum groups per extent.
pub const MAX_EXTENT_GROUPS: u64 = 16;
/// Target size of an arena file; no new extent begins past it.
pub const ARENA_BYTES: u64 = 1 << 30;
/// Maximum groups of a store.
pub const MAX_GROUPS: u64 = MAX_CONTEXT as u64 / PAGE_TOKENS as u64;

/// Identity of a store. Two stores are interchangeable if their specs and tokens are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSpec {
    /// hash of the model's weights and dimensions
    pub model_hash: [u8; 32],
    /// hash of the tokenizer
    pub tokenizer_hash: [u8; 32],
    /// hash of the rope settings and of the K and V quantization
    pub settings_hash: [u8; 32],
    /// element type and layout of a payload, at most 24 ASCII letters, for example `f16/block16`
    pub layout: String,
    /// L
    pub n_layer: u32,
    /// payload bytes of a KV page: 64 tokens of one layer, all KV heads, K and V
    pub kv_page_bytes: u64,
    /// payload bytes of an activation page, 0 if the store has none
    pub activation_page_bytes: u64,
    /// bytes of the abstract of one page, 0 if the store has none
    pub abstract_bytes: u32,
}

impl StoreSpec {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn check(&self) -> Result<(), StoreError> {
        let within = |name, got: u64, least: u64, most: u64| {
            let must = || format!("between {least} and {most}");
            if got < least || got > most { Err(StoreError::Spec { name, got, must: must() }) } else { Ok(()) }
        };
        within("n_layer", u64::from(self.n_layer), 1, MAX_LAYERS as u64)?;
        within("kv_page_bytes", self.kv_page_bytes, 1, MAX_PAGE_BYTES)?;
        within("activation_page_bytes", self.activation_page_bytes, 0, MAX_PAGE_BYTES)?;
        within("abstract_bytes", u64::from(self.abstract_bytes), 0, MAX_PAGE_BYTES)?;
        within("length of layout", self.layout.len() as u64, 1, 24)
    }

    /// `layout` as the header stores it.
    pub fn layout_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (place, letter) in bytes.iter_mut().zip(self.layout.bytes()) {
            *place = letter;
        }
        bytes
    }
}

/// Sizes derived from a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// L
    pub n_layer: u32,
    /// payload bytes by kind, 0 if the store does not have the kind
    pub payload_bytes: [u64; 2],
    /// slot bytes by kind
    pub slot_bytes: [u64; 2],
    /// E
    pub extent_groups: u32,
    /// extents per arena file
    pub arena_extents: u32,
    /// bytes of the abstracts of one group, all layers
    pub abstract_row_bytes: u64,
    /// bytes of a group entry
    pub entry_bytes: u64,
}

/// Location of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// kind and number of the arena file
    pub arena: (PageKind, u32),
    /// offset of the page
    pub offset: u64,
    /// minimum length of the arena file to write the page
    pub arena_len: u64,
}

impl Geometry {
    /// Sizes for `spec`.
    ///
    /// # Errors
    /// As [`StoreSpec::check`].
    pub fn new(spec: &StoreSpec) -> Result<Self, StoreError> {
        spec.check()?;
        let payload_bytes = [spec.kv_page_bytes, spec.activation_page_bytes];
        let slot_bytes = payload_bytes.map(|b| b.next_multiple_of(ALIGN_BYTES));
        let extent_groups = (RUN_BYTES / slot_bytes[0]).clamp(1, MAX_EXTENT_GROUPS);
        let n_layer = u64::from(spec.n_layer);
        let extent_bytes = extent_groups * n_layer * slot_bytes[0].max(slot_bytes[1]);
        let n_kinds = if spec.activation_page_bytes > 0 { 2 } else { 1 };
        Ok(Geometry {
            n_layer: spec.n_layer,
            payload_bytes,
            slot_bytes,
            extent_groups: extent_groups as u32,
            arena_extents: (ARENA_BYTES / extent_bytes).clamp(1, 1 << 20) as u32,
            abstract_row_bytes: n_layer * u64::from(spec.abstract_bytes),
            entry_bytes: (ENTRY_HEAD_BYTES as u64 + n_kinds * n_layer * 8).next_multiple_of(64),
        })
    }

    /// Pages per group, of every kind in the store.
    pub fn pages_per_group(&self) -> usize {
        let n_kinds = if self.payload_bytes[1] > 0 { 2 } else { 1 };
        n_kinds * self.n_layer as usize
    }

    /// Index of a page among the [`Geometry::pages_per_group`] of its group. None if the page cannot exist.
    pub fn page_index(&self, page: PageId) -> Option<usize> {
        let is_stored = page.layer < self.n_layer && self.payload_of(page.kind) > 0 && u64::from(page.group) < MAX_GROUPS;
        is_stored.then(|| page.kind.index() * self.n_layer as usize + page.layer as usize)
    }

    /// Payload bytes of a kind.
    pub fn payload_of(&self, kind: PageKind) -> u64 {
        self.payload_bytes[kind.index()]
    }

    /// Slot bytes of a kind.
    pub fn slot_of(&self, kind: PageKind) -> u64 {
        self.slot_bytes[kind.index()]
    }

    /// Extent bytes of a kind.
    pub fn extent_bytes(&self, kind: PageKind) -> u64 {
        u64::from(self.extent_groups) * u64::from(self.n_layer) * self.slot_of(kind)
    }

    /// Location of `page`.
    pub fn place(&self, page: PageId) -> Place {
        let extent = page.group / self.extent_groups;
        let in_arena = u64::from(extent % self.arena_extents);
        let in_extent = u64::from(page.layer) * u64::from(self.extent_groups) + u64::from(page.group % self.extent_groups);
        let extent_bytes = self.extent_bytes(page.kind);
        Place {
            arena: (page.kind, extent / self.arena_extents),
            offset: in_arena * extent_bytes + in_extent * self.slot_of(page.kind),
            arena_len: (in_arena + 1) * extent_bytes,
        }
    }

    /// One past the last group whose page of a layer is contiguous with that of `group`.
    pub fn run_end(&self, group: u32) -> u32 {
        (group / self.extent_groups + 1) * self.extent_groups
    }

    /// Offset of the entry of a group in the index.
    pub fn entry_offset(&self, group: u32) -> u64 {
        ENTRIES_OFFSET + u64::from(group) * self.entry_bytes
    }

    /// Disk bytes of `n_groups` groups with KV pages, metadata included; a disk budget needs at least this.
    pub fn store_bytes(&self, n_groups: u64, n_tokens: u64) -> u64 {
        let extents = n_groups.div_ceil(u64::from(self.extent_groups));
        extents * self.extent_bytes(PageKind::Kv)
            + n_groups * (self.entry_bytes + self.abstract_row_bytes)
            + ENTRIES_OFFSET
            + crate::kv::store::format::HEADER_BLOCK_BYTES
            + 4 * n_tokens
    }
}

/// Name of an arena file.
pub fn arena_name(kind: PageKind, number: u32) -> String {
    match kind {
        PageKind::Kv => format!("kv-{number:04}.arena"),
        PageKind::Activation => format!("activation-{number:04}.arena"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    pub fn spec(n_layer: u32, kv_page_bytes: u64, activation_page_bytes: u64) -> StoreSpec {
        StoreSpec {
            model_hash: [1; 32],
            tokenizer_hash: [2; 32],
            settings_hash: [3; 32],
            layout: "f16/block16".into(),
            n_layer,
            kv_page_bytes,
            activation_page_bytes,
            abstract_bytes: 0,
        }
    }

    #[test]
    fn pages_lie_aligned_and_apart_in_every_shape() {
        for (n_layer, kv, activation) in [(1, 1, 0), (6, 32 << 10, 0), (3, 70_000, 5000), (2, 1 << 20, 0)] {
            let geometry = Geometry::new(&spec(n_layer, kv, activation)).unwrap();
            let mut seen = HashSet::new();
            for kind in PageKind::ALL.into_iter().filter(|k| geometry.payload_of(*k) > 0) {
                for (layer, group) in (0..n_layer).flat_map(|l| (0..40).map(move |g| (l, g))) {
                    let place = geometry.place(PageId { kind, layer, group });
                    assert!(place.offset.is_multiple_of(ALIGN_BYTES));
                    assert!(place.offset + geometry.slot_of(kind) <= place.arena_len);
                    assert!(seen.insert((place.arena, place.offset)), "{kind:?} {layer} {group}");
                }
            }
        }
    }

    #[test]
    fn pages_of_one_layer_in_an_extent_follow_each_other() {
        let geometry = Geometry::new(&spec(6, 32 << 10, 0)).unwrap();
        assert_eq!(geometry.extent_groups, 8, "256 KiB in one read");
        let at = |group| geometry.place(PageId::kv(4, group)).offset;
        assert_eq!((at(9) - at(8), at(15) - at(14), geometry.run_end(8)), (32 << 10, 32 << 10, 16));
        assert_eq!(Geometry::new(&spec(32, 256 << 10, 0)).unwrap().extent_groups, 1);
    }

    #[test]
    fn metadata_stays_under_half_a_percent_of_f16_pages() {
        for (n_layer, kv) in [(6, 32 << 10), (24, 32 << 10), (32, 256 << 10)] {
            let geometry = Geometry::new(&spec(n_layer, kv, 0)).unwrap();
            let n_groups = 256;
            let pages = n_groups * u64::from(n_layer) * kv;
            let rest = geometry.store_bytes(n_groups, n_groups * 64) - pages;
            assert!((rest as f64) < 0.005 * pages as f64, "{rest} of {pages}");
        }
    }

    #[test]
    fn spec_beyond_its_limits_is_refused_by_name() {
        let mut bad = spec(0, 4096, 0);
        assert!(Geometry::new(&bad).unwrap_err().to_string().contains("n_layer = 0"));
        bad = spec(1, MAX_PAGE_BYTES + 1, 0);
        assert!(Geometry::new(&bad).is_err());
        bad = spec(1, 4096, 0);
        bad.layout = "a".repeat(25);
        assert!(Geometry::new(&bad).is_err());
    }
}
