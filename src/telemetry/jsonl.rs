//! Counters as JSON lines, for scripts that follow a run.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::counters::Counters;
use super::event::{Link, WaitCause};

/// Writes `counters`, read at `at_ns`, as one line. The latency of an unused link is null, not 0.
///
/// # Errors
/// Those of `out`.
pub fn write_counters(out: &mut impl Write, at_ns: u64, counters: &Counters) -> io::Result<()> {
    let links: Map<String, Value> = Link::ALL.iter().map(|link| (key(link.name()), link_json(counters, *link))).collect();
    let waits: Map<String, Value> = WaitCause::ALL.iter().map(|c| (key(c.name()), json!(counters.wait(*c)))).collect();
    let line = json!({
        "at_ns": at_ns,
        "links": links,
        "waits": waits,
        "pages": counters.pages,
        "recomputed_tokens": counters.recomputed_tokens,
        "gpu_ns": counters.gpu_ns,
        "n_faults": counters.n_faults,
        "n_events": counters.n_events,
        "n_dropped": counters.n_dropped,
    });
    writeln!(out, "{line}")
}

fn link_json(counters: &Counters, link: Link) -> Value {
    let (moved, latency) = (counters.link(link), counters.latency(link));
    json!({
        "n_moves": moved.n_moves,
        "n_pages": moved.n_pages,
        "bytes": moved.bytes,
        "latency_ns_p50": latency.quantile(0.5),
        "latency_ns_p99": latency.quantile(0.99),
    })
}

fn key(name: &str) -> String {
    name.replace(' ', "_")
}
