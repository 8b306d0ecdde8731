//! Recorded run: the last events of a real answer as a trace, and its final page map.
//! `panels_show_a_real_run_over_three_tiers` writes it with `STRATA_RECORD=1`; the tests of the panels read it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use strata::base::Tiers;
use strata::engine::{EngineEvent, KvDtype, PageCopies, PageMap, Phases, RequestSummary, Tier, TierOccupancy, TierUsage};
use strata::telemetry::chrome_trace::{self, ChromeTrace};
use strata::telemetry::{Event, History, LaneSnapshot, Snapshot};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dashboard").join(name)
}

/// Writes the events from `from_ns` to `to_ns`, from 0 on, and the map.
pub fn write(history: &History, (from_ns, to_ns): (u64, u64), pages: &PageMap, summary: &RequestSummary) {
    std::fs::create_dir_all(path("")).unwrap();
    let mut lanes: Vec<LaneSnapshot> = Vec::new();
    for series in history.series() {
        let events = series.within(from_ns, to_ns).filter(|event| event.begin_ns >= from_ns);
        let events = events.map(|event| Event { begin_ns: event.begin_ns - from_ns, ..*event });
        match lanes.iter_mut().find(|lane| lane.name == series.lane) {
            Some(lane) => lane.events.extend(events),
            None => lanes.push(LaneSnapshot { name: series.lane.clone().into(), events: events.collect(), n_dropped: 0 }),
        }
    }
    lanes.iter_mut().for_each(|lane| lane.events.sort_by_key(|event| event.begin_ns));
    let snapshot = Snapshot { taken_ns: to_ns - from_ns, lanes, counters: *history.counters() };
    let mut trace = ChromeTrace::new(BufWriter::new(File::create(path("run.json")).unwrap())).unwrap();
    trace.add(&snapshot).unwrap();
    trace.finish().unwrap();
    let occupancy = &pages.occupancy;
    let bits = |copies: &PageCopies| {
        let has = |tier| u8::from(copies.has(tier));
        has(Tier::Vram) + 2 * has(Tier::Ram) + 4 * has(Tier::Disk)
    };
    let tier = |t: &TierUsage| [t.n_pages, t.page_bytes, t.spare_bytes];
    let map = json!({
        "n_layer": occupancy.n_layer,
        "n_pages": occupancy.n_pages,
        "n_tokens": pages.n_tokens,
        "page_bytes": pages.page_bytes,
        "copies": occupancy.copies.iter().map(|c| bits(c).to_string()).collect::<String>(),
        "steps_since_read": occupancy.steps_since_read,
        "mass_ppm": pages.mass.iter().map(|m| if m.is_nan() { -1 } else { (m * 1e6) as i64 }).collect::<Vec<_>>(),
        "tiers": [tier(&occupancy.tiers.vram), tier(&occupancy.tiers.ram), tier(&occupancy.tiers.disk)],
        "first_byte": pages.first_byte,
        "prompt_tokens": summary.prompt_tokens,
        "tokenize_ms": summary.phases.tokenize_ms,
        "restore_ms": summary.phases.restore_ms,
        "prefill_ms": summary.phases.prefill_ms,
        "first_token_ms": summary.phases.first_token_ms,
        "decode_ms": summary.phases.decode_ms,
    });
    std::fs::write(path("pages.json"), map.to_string() + "\n").unwrap();
}

/// The events of the run, as the engine sends them.
pub fn telemetry() -> EngineEvent {
    let mut snapshot = chrome_trace::read(BufReader::new(File::open(path("run.json")).unwrap())).unwrap().snapshot;
    snapshot.lanes.iter_mut().for_each(|lane| lane.name = Cow::Owned(lane.name.to_string()));
    EngineEvent::Telemetry(Box::new(snapshot))
}

/// Parts of the run's answer; it ends with the recording.
pub fn phases() -> Phases {
    let EngineEvent::Telemetry(snapshot) = telemetry() else { unreachable!() };
    let mut history = History::default();
    history.add(&snapshot);
    let (began_ns, ended_ns) = history.range_ns().unwrap();
    let ms = |name: &str| map()[name].as_f64().unwrap();
    Phases {
        tokenize_ms: ms("tokenize_ms"),
        restore_ms: ms("restore_ms"),
        prefill_ms: ms("prefill_ms"),
        first_token_ms: ms("first_token_ms"),
        decode_ms: ms("decode_ms"),
        began_ns,
        ended_ns,
    }
}

/// Tokens before the answer.
pub fn prompt_tokens() -> usize {
    map()["prompt_tokens"].as_u64().unwrap() as usize
}

fn map() -> Value {
    serde_json::from_str(&std::fs::read_to_string(path("pages.json")).unwrap()).unwrap()
}

/// The map at the end of the run.
pub fn pages() -> PageMap {
    let map = map();
    let numbers = |name: &str| map[name].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect::<Vec<i64>>();
    let number = |name: &str| map[name].as_u64().unwrap();
    let copies = map["copies"].as_str().unwrap().bytes().map(|bits| {
        let tiers = [(1, Tier::Vram), (2, Tier::Ram), (4, Tier::Disk)];
        let there = tiers.into_iter().filter(|(bit, _)| (bits - b'0') & bit != 0);
        there.fold(PageCopies::default(), |copies, (_, tier)| copies.with(tier))
    });
    let tier = |i: usize| {
        let at = |k: usize| map["tiers"][i][k].as_u64().unwrap();
        TierUsage { n_pages: at(0), page_bytes: at(1), spare_bytes: at(2) }
    };
    let occupancy = TierOccupancy {
        n_layer: number("n_layer") as usize,
        n_pages: number("n_pages") as usize,
        copies: copies.collect(),
        steps_since_read: numbers("steps_since_read").into_iter().map(|n| n as u32).collect(),
        tiers: Tiers { vram: tier(0), ram: tier(1), disk: tier(2) },
    };
    PageMap {
        taken_ns: 1,
        occupancy,
        n_tokens: number("n_tokens") as usize,
        page_bytes: number("page_bytes"),
        dtype: KvDtype::F16,
        mass: numbers("mass_ppm").into_iter().map(|ppm| if ppm < 0 { f32::NAN } else { ppm as f32 / 1e6 }).collect(),
        first_byte: numbers("first_byte").into_iter().map(|n| n as u32).collect(),
    }
}

/// The map as an event.
pub fn pages_event() -> EngineEvent {
    EngineEvent::Pages(Arc::new(pages()))
}
