//! Reused parts: documents of the context whose KV is saved at another position, and what of it was imported.
//!
//! ```text
//! group of the context ─► one or two pages of each layer of a saved store ─► keys rotated ─► pages for the tail
//! ```
//! 1. A source is opened read only, and closed after its last group.
//! 2. A page that cannot be read closes its source: the rest of the document is prefilled.
//! 3. An imported group that is prefilled later, for whatever reason, counts as imported no more.
//!
//! Owner thread: the engine.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{DocumentRef, ReusedDocument};
use crate::engine::context::document_parts::DocumentPart;
use crate::kv::store::{PageId, PageStore};
use crate::kv::{KvSpec, Reposition, ReusableGroups, page_numbers, repositioned_page, rotation};
use crate::model::arch::plan::{RopePlan, RopeStyle};

/// Mode of reuse at another position.
pub(super) enum RepositionMode {
    Off,
    /// requested, but the model has learned positions
    Impossible {
        has_notified: bool,
    },
    On(RopePlan),
}

/// A store that has the KV of a document at another position.
pub(super) struct Source {
    pub(super) store: PageStore,
    /// position of its first token in the prompt that it was saved from
    pub(super) first_pos: usize,
    /// numbers of the last page of each layer, and its group
    recent: Option<(u32, Vec<Vec<f32>>)>,
}

impl Source {
    pub(super) fn new(store: PageStore, first_pos: usize) -> Source {
        Source { store, first_pos, recent: None }
    }

    /// Pages of the group at `pos` for the tail of each layer. Its tokens are saved from `first_saved` on.
    fn pages(&mut self, spec: &KvSpec, rope: &RopePlan, first_saved: usize, pos: usize) -> Result<Vec<Vec<u8>>, String> {
        let (group, first_row) = ((first_saved / KV_PAGE_TOKENS) as u32, first_saved % KV_PAGE_TOKENS);
        let first = self.numbers(spec, group)?;
        let second = if first_row == 0 { None } else { Some(self.numbers(spec, group + 1)?) };
        let old_pos = self.first_pos + first_saved;
        let angles = |token| rope.angles(old_pos + token).zip(rope.angles(pos + token));
        let rotations: Vec<Vec<[f32; 2]>> =
            (0..KV_PAGE_TOKENS).map(|token| angles(token).map(|(from, to)| rotation(from, to)).collect()).collect();
        let to = Reposition { first_row, rotations: &rotations, half_style: rope.style == RopeStyle::Half };
        let last = second.as_ref().unwrap_or(&first);
        let pages = first.par_iter().zip(last).map(|(first, last)| repositioned_page(spec, [first, last], &to)).collect();
        self.recent = second.map(|second| (group + 1, second));
        Ok(pages)
    }

    /// Numbers of the pages of a group, layer by layer.
    fn numbers(&mut self, spec: &KvSpec, group: u32) -> Result<Vec<Vec<f32>>, String> {
        if let Some((_, numbers)) = self.recent.take().filter(|(recent, _)| *recent == group) {
            return Ok(numbers);
        }
        let mut pages = Vec::with_capacity(spec.n_layer);
        for layer in 0..spec.n_layer {
            let page = self.store.get(PageId::kv(layer as u32, group)).map_err(|error| error.to_string())?;
            pages.push(page.ok_or_else(|| format!("page {group} of layer {layer} is corrupt"))?);
        }
        let numbers: Option<Vec<_>> = pages.par_iter().map(|page| page_numbers(spec, page)).collect();
        numbers.ok_or_else(|| format!("page {group} has another size"))
    }
}

/// A part of the context that is not saved, because it or a part before it has reused KV.
pub(super) struct ReusedPart {
    pub(super) part: DocumentPart,
    document: DocumentRef,
    /// None if nothing of it is saved elsewhere
    groups: Option<ReusableGroups>,
    /// None once it is not needed any more
    source: Option<Source>,
    imported: BTreeSet<u32>,
}

impl ReusedPart {
    pub(super) fn new(part: DocumentPart, document: DocumentRef, found: Option<(ReusableGroups, Source)>) -> ReusedPart {
        let (groups, source) = found.unzip();
        ReusedPart { part, document, groups, source, imported: BTreeSet::new() }
    }

    /// Position in the saved tokens of the group, if it can be imported.
    fn first_saved(&self, group: u32) -> Option<usize> {
        let groups = self.groups.as_ref().filter(|_| self.source.is_some())?;
        let n_before = group.checked_sub(groups.groups.start).filter(|_| groups.groups.contains(&group))?;
        Some(groups.first_saved + n_before as usize * KV_PAGE_TOKENS)
    }

    fn n_tokens(&self, n_tokens: usize) -> usize {
        self.imported.range(..(n_tokens / KV_PAGE_TOKENS) as u32).count() * KV_PAGE_TOKENS
    }
}

/// Parts of the context from the first one with reused KV on. Empty if all KV is exact.
#[derive(Default)]
pub(super) struct ReusedParts {
    pub(super) parts: Vec<ReusedPart>,
    rope: Option<RopePlan>,
}

impl ReusedParts {
    pub(super) fn new(parts: Vec<ReusedPart>, rope: RopePlan) -> ReusedParts {
        ReusedParts { parts, rope: Some(rope) }
    }

    /// Pages of the group that begins at `pos`, by layer; an error if they cannot be read. None if it has to be prefilled.
    pub(super) fn pages_at(&mut self, spec: &KvSpec, pos: usize) -> Option<Result<Vec<Vec<u8>>, String>> {
        let group = (pos / KV_PAGE_TOKENS) as u32;
        let rope = self.rope.as_ref().filter(|_| pos.is_multiple_of(KV_PAGE_TOKENS))?;
        let (part, first_saved) =
            self.parts.iter_mut().find_map(|part| Some((part.first_saved(group)?, part)).map(|(n, p)| (p, n)))?;
        let result = part.source.as_mut()?.pages(spec, rope, first_saved, pos);
        let is_last = part.groups.as_ref().is_none_or(|groups| group + 1 == groups.groups.end);
        if is_last || result.is_err() {
            part.source = None;
        }
        let name = &part.document.name;
        Some(result.map_err(|why| format!("the saved KV of {name} cannot be reused from here on ({why}); the rest is prefilled")))
    }

    /// Records that the group at `pos` was imported.
    pub(super) fn record_imported(&mut self, pos: usize) {
        let group = (pos / KV_PAGE_TOKENS) as u32;
        let has_group = |part: &&mut ReusedPart| part.groups.as_ref().is_some_and(|groups| groups.groups.contains(&group));
        self.parts.iter_mut().filter(has_group).for_each(|part| {
            part.imported.insert(group);
        });
    }

    /// Tokens from `pos` to the next group that can be imported.
    pub(super) fn tokens_before_import(&self, pos: usize) -> Option<usize> {
        let next = pos.div_ceil(KV_PAGE_TOKENS) as u32;
        let ranges = self.parts.iter().filter(|part| part.source.is_some()).filter_map(|part| part.groups.as_ref());
        let starts = ranges.filter(|range| next < range.groups.end).map(|range| range.groups.start.max(next));
        starts.min().map(|group| group as usize * KV_PAGE_TOKENS - pos)
    }

    /// Forgets imported groups that fail `is_valid`.
    pub(super) fn retain(&mut self, is_valid: impl Fn(u32) -> bool) {
        self.parts.iter_mut().for_each(|part| part.imported.retain(|group| is_valid(*group)));
    }

    /// Documents with imported groups among the first `n_tokens` of the context.
    pub(super) fn documents(&self, n_tokens: usize) -> Vec<ReusedDocument> {
        let of_part =
            |part: &ReusedPart| ReusedDocument { content_hash: part.document.content_hash, tokens: part.n_tokens(n_tokens) };
        self.parts.iter().map(of_part).filter(|document| document.tokens > 0).collect()
    }
}
