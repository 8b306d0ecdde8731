//! Page tooltip: the facts of one page of the KV cache, one a line. Pure.

use std::ops::Range;

use crate::app::dashboard::page_text::{self, cached_chat};
use crate::app::state::ViewState;
use crate::app::ui::format;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::{NEVER_READ, PageMap, Tier};

/// Byte range of a page in the joined documents.
pub fn page_range(map: &PageMap, page: usize) -> Option<Range<usize>> {
    let (first, end) = (*map.first_byte.get(page)?, *map.first_byte.get(page + 1)?);
    Some(first as usize..end as usize)
}

/// Tokens, document, size, copies, last use and attention of a page; over several layers, the combined facts.
pub fn page_lines(view: &ViewState, map: &PageMap, layers: Range<usize>, page: usize) -> Vec<String> {
    let first = page * KV_PAGE_TOKENS;
    let layer = match layers.len() {
        1 => format!("layer {}", layers.start),
        _ => format!("layers {}–{}", layers.start, layers.end.saturating_sub(1)),
    };
    let tokens = format!("{}–{}", format::count(first), format::count(first + KV_PAGE_TOKENS - 1));
    let mut lines = vec![format!("Tokens {tokens}, {layer}")];
    lines.extend(document_line(view, map, page));
    lines.push(format!("{}, {}", format::bytes(map.page_bytes * layers.len() as u64), map.dtype.name()));
    lines.push(copies_line(map, layers.clone(), page));
    lines.push(read_line(map, layers.clone(), page));
    lines.push(mass_label(map, layers, page));
    lines
}

fn document_line(view: &ViewState, map: &PageMap, page: usize) -> Option<String> {
    let range = page_range(map, page)?;
    let (doc, byte) = page_text::place(cached_chat(view), &view.documents.list, range.start)?;
    let name = cached_chat(view).document_name(&view.documents.list, doc);
    Some(format!("{name}, page {}", format::count(doc.page_number(doc.page_of(byte)))))
}

fn copies_line(map: &PageMap, layers: Range<usize>, page: usize) -> String {
    let has = |tier: Tier| layers.clone().filter(|layer| map.occupancy.at(*layer, page).has(tier)).count();
    let tiers = [(Tier::Vram, "in VRAM"), (Tier::Ram, "in RAM"), (Tier::Disk, "on the disk")];
    let there = tiers.into_iter().filter_map(|(tier, name)| match (has(tier), layers.len()) {
        (0, _) => None,
        (n, all) if n == all => Some(name.to_owned()),
        (n, all) => Some(format!("{name} ({n} of {all} layers)")),
    });
    match there.collect::<Vec<_>>() {
        none if none.is_empty() => "in no tier: will be recomputed".to_owned(),
        there => there.join(", "),
    }
}

fn read_line(map: &PageMap, layers: Range<usize>, page: usize) -> String {
    if map.occupancy.steps_since_read.is_empty() {
        return "read in every step".to_owned();
    }
    let since = |layer: usize| map.occupancy.steps_since_read.get(map.occupancy.index(layer, page)?).copied();
    match layers.filter_map(since).min() {
        None | Some(NEVER_READ) => "not read yet by a step of the policy".to_owned(),
        Some(0) => "read in the newest step".to_owned(),
        Some(1) => "last read 1 step ago".to_owned(),
        Some(n) => format!("last read {} steps ago", format::count(n as usize)),
    }
}

fn mass_label(map: &PageMap, layers: Range<usize>, page: usize) -> String {
    let mass = layers.filter_map(|layer| map.mass.get(map.occupancy.index(layer, page)?)).copied();
    match mass.filter(|mass| !mass.is_nan()).reduce(f32::max) {
        None => "attention N/A: not sampled".to_owned(),
        Some(mass) => format!("{:.2} % of the layer's attention, when it was sampled", mass * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{KvDtype, LoadOptions, ModelSource, PageCopies, TierOccupancy};

    fn map() -> PageMap {
        let mut occupancy = TierOccupancy::new(2, 3);
        occupancy.copies = vec![PageCopies::default().with(Tier::Disk); 6];
        occupancy.copies[1] = occupancy.copies[1].with(Tier::Vram);
        PageMap {
            taken_ns: 0,
            occupancy,
            n_tokens: 200,
            page_bytes: 32 << 10,
            dtype: KvDtype::F16,
            mass: Vec::new(),
            first_byte: vec![0, 300, 600, 900],
        }
    }

    fn words(map: &PageMap, layers: Range<usize>) -> String {
        page_lines(&ViewState::new(ModelSource::BuiltIn, LoadOptions::default()), map, layers, 1).join(" · ")
    }

    #[test]
    fn page_that_everything_reads_shows_so_and_what_was_not_sampled() {
        let expected =
            "Tokens 64–127, layer 0 · 32.0 KiB, f16 · in VRAM, on the disk · read in every step · attention N/A: not sampled";
        assert_eq!(words(&map(), 0..1), expected);
        let both = words(&map(), 0..2);
        assert!(both.contains("layers 0–1 · 64.0 KiB") && both.contains("in VRAM (1 of 2 layers), on the disk"), "{both}");
    }

    #[test]
    fn page_that_a_policy_reads_has_its_last_step_and_mass() {
        let mut map = map();
        map.occupancy.steps_since_read = vec![NEVER_READ, 3, 0, 1, 0, 0];
        map.mass = vec![0.1, 0.0123, 0.0, f32::NAN, f32::NAN, f32::NAN];
        assert!(words(&map, 0..1).ends_with("last read 3 steps ago · 1.23 % of the layer's attention, when it was sampled"));
        map.occupancy.steps_since_read[1] = NEVER_READ;
        assert!(words(&map, 0..1).contains("not read yet"));
        assert!(words(&map, 1..2).ends_with("attention N/A: not sampled"));
        map.occupancy.copies[1] = PageCopies::default();
        assert!(words(&map, 0..1).contains("in no tier: will be recomputed"));
    }
}
