//! Page map against the allocators, and against the prefilled text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strata::base::{Bytes, Tiers};
use strata::engine::{
    AttentionMode, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelSource, NEVER_READ, PageMap, PolicySpec,
    Role, Sampling, SelectionBudget, Tier,
};

use crate::{engine_with, finish, half_document, saved_as};

/// Asks on a document larger than VRAM and RAM, with page maps on. Returns all maps, and the use of the tiers.
fn watched(test: &str, policy: Option<PolicySpec>) -> Option<(EngineHandle, Vec<Arc<PageMap>>, Tiers<u64>)> {
    let dir = tempfile::tempdir().unwrap();
    let budgets = Tiers { vram: Some(Bytes(3 << 20)), ram: Some(Bytes(4 << 20)), disk: None };
    let kv_dir = Some(dir.path().to_owned());
    let options = LoadOptions { budgets, policy, kv_dir, context: Some(8192), ..LoadOptions::default() };
    let (handle, _) = engine_with(test, ModelSource::BuiltIn, options)?;
    handle.watch_pages(true);
    let text = half_document();
    let documents = vec![saved_as("document.txt", &text, 1)];
    let content = format!("{text}\n\nWhat is the current temperature for Reribe?");
    let messages = vec![Message { role: Role::User, content }];
    let (sampling, policy) = (Sampling::default(), AttentionMode::Sampled);
    handle.send(EngineCommand::Generate { request: 1, messages, documents, sampling, max_tokens: 16, policy });
    let (events, end) = finish(&handle);
    let used = end.unwrap().kv_bytes;
    let map = |event| if let EngineEvent::Pages(map) = event { Some(map) } else { None };
    Some((handle, events.into_iter().filter_map(map).collect(), used))
}

/// The current page map, and the use of the tiers by their own counters just after it.
fn map_and_use(handle: &EngineHandle) -> (Arc<PageMap>, Tiers<u64>) {
    handle.send(EngineCommand::ShowPages);
    let mut map = None;
    loop {
        match handle.wait(Duration::from_secs(60)).unwrap() {
            EngineEvent::Pages(shown) => map = Some(shown),
            EngineEvent::KvUse { used, .. } => {
                if let Some(map) = map.take() {
                    break (map, used);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn page_map_matches_the_allocators() {
    let Some((handle, _, of_request)) = watched("page_map_matches_the_allocators", None) else { return };
    // Read-ahead continues after a request, so RAM is compared once it has settled.
    let began = Instant::now();
    let (map, used) = loop {
        let (map, used) = map_and_use(&handle);
        if map.occupancy.tiers.ram.bytes() == used.ram || began.elapsed() > Duration::from_secs(20) {
            break (map, used);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let (occupancy, tiers) = (&map.occupancy, map.occupancy.tiers);
    assert!(occupancy.n_layer == 6 && occupancy.n_pages > 40, "{} pages of {} layers", occupancy.n_pages, occupancy.n_layer);
    assert_eq!(Tiers { vram: tiers.vram.bytes(), ram: tiers.ram.bytes(), disk: tiers.disk.bytes() }, used);
    assert_eq!((used.vram, used.disk), (of_request.vram, of_request.disk), "after a request, only RAM changes");
    for (tier, held) in [(Tier::Vram, tiers.vram), (Tier::Ram, tiers.ram), (Tier::Disk, tiers.disk)] {
        assert_eq!(occupancy.count(tier), held.n_pages, "{tier:?}");
        assert!(held.n_pages > 0 && held.n_pages < occupancy.copies.len() as u64 || tier == Tier::Disk, "{tier:?}: {held:?}");
        assert!(held.page_bytes >= held.n_pages * map.page_bytes, "{tier:?}: {held:?}");
    }
    assert!(occupancy.copies.iter().all(|copies| copies.nearest().is_some()), "no page is lost");
    assert!(occupancy.steps_since_read.is_empty() && map.mass.is_empty(), "every step reads every page");
}

#[test]
fn page_map_offsets_match_the_text_of_the_pages() {
    let Some((_handle, maps, _)) = watched("page_map_offsets_match_the_text_of_the_pages", None) else { return };
    let map = maps.last().unwrap();
    let text = half_document();
    assert_eq!(map.first_byte.len(), map.occupancy.n_pages + 1);
    let tokenizer = strata::engine::tokenizer(&ModelSource::BuiltIn).unwrap();
    let page = |i: usize| &text[map.first_byte[i] as usize..map.first_byte[i + 1] as usize];
    // The text of a page from the middle has about 64 tokens.
    let n = tokenizer.encode(page(30), false).unwrap().len();
    assert!((60..=68).contains(&n), "{n} tokens: {}", page(30));
    assert_eq!((1..30).map(page).collect::<String>(), text[map.first_byte[1] as usize..map.first_byte[30] as usize]);
    assert!(text.starts_with(page(0)));
}

#[test]
fn page_map_of_a_policy_has_last_reads_and_attention_mass() {
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.1), is_forced: true, ..PolicySpec::default() };
    let test = "page_map_of_a_policy_has_last_reads_and_attention_mass";
    let Some((handle, maps, _)) = watched(test, Some(spec)) else { return };
    let map = maps.last().unwrap();
    let since = &map.occupancy.steps_since_read;
    assert!(since.iter().any(|steps| *steps <= 1) && since.contains(&NEVER_READ), "{since:?}");
    // Attention mass of a layer on complete pages; the rest is on the tail.
    let of_layer = |mass: &[f32]| mass.iter().filter(|m| !m.is_nan()).sum::<f32>();
    let sums: Vec<f32> = map.mass.chunks(map.occupancy.n_pages).map(of_layer).collect();
    assert!(sums.iter().all(|sum| (0.0..1.001).contains(sum)) && sums.iter().any(|sum| *sum > 0.5), "{sums:?}");
    // With page maps off, a map is emitted only on request.
    handle.watch_pages(false);
    handle.send(EngineCommand::Prefill { request: 2, text: "A few words.".repeat(20), documents: Vec::new() });
    let (events, _) = finish(&handle);
    assert!(!events.iter().any(|event| matches!(event, EngineEvent::Pages(_))));
    handle.send(EngineCommand::ShowPages);
    let event = handle.wait(Duration::from_secs(60)).unwrap();
    assert!(matches!(event, EngineEvent::Pages(_)), "{event:?}");
}

#[test]
fn link_bandwidth_is_measured() {
    let Some((handle, _)) = engine_with("link_bandwidth_is_measured", ModelSource::BuiltIn, LoadOptions::default()) else {
        return;
    };
    handle.send(EngineCommand::MeasureLinks);
    loop {
        if let EngineEvent::Links(peaks) = handle.wait(Duration::from_secs(60)).unwrap() {
            assert!(peaks.ram_to_vram > 0.0 && peaks.vram_to_ram > 0.0, "{peaks:?}");
            assert!(peaks.disk_to_ram.unwrap() > 0.0 && peaks.ram_to_disk.unwrap() > 0.0, "{peaks:?}");
            break;
        }
    }
}
