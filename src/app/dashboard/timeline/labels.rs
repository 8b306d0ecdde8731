//! Timeline labels: durations, shares and events as text.

use crate::app::ui::format;
use crate::base::Bytes;
use crate::telemetry::{Event, EventKind, KernelFamily, NO_LAYER, TimeCategory};

/// `18.3 ms`, `1.20 s`, `640 ns`: three digits.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// `18.3 ms (12 %)`
pub fn share_of(ns: u64, whole_ns: u64) -> String {
    match whole_ns {
        0 => duration(ns),
        _ => format!("{} ({:.0} %)", duration(ns), 100.0 * ns as f64 / whole_ns as f64),
    }
}

/// A mark of the axis, `since` its left end: as many digits as `tick_ns` needs.
pub fn mark(since_ns: u64, tick_ns: u64) -> String {
    let (scale, unit) = match tick_ns {
        0..1_000 => (1e3, "µs"),
        1_000..1_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let decimals = (scale / tick_ns as f64).log10().ceil().clamp(0.0, 3.0) as usize;
    format!("{:.decimals$} {unit}", since_ns as f64 / scale)
}

/// Label of a time category.
pub fn category(what: TimeCategory) -> String {
    match what {
        TimeCategory::Compute(family) => format!("GPU {}", family.name()),
        TimeCategory::Wait(cause) => format!("wait: {}", cause.name()),
        TimeCategory::Recompute => "recompute".to_owned(),
        TimeCategory::Select => "CPU choose".to_owned(),
        TimeCategory::Encode => "CPU encode".to_owned(),
        TimeCategory::Phase(phase) => phase.name().to_owned(),
        TimeCategory::Unattributed => "unattributed".to_owned(),
        TimeCategory::Idle => "idle".to_owned(),
    }
}

/// The facts of an event, one a line.
pub fn event(event: &Event) -> Vec<String> {
    let ns = event.duration_ns;
    let layer = |layer: u32| (layer != NO_LAYER).then(|| format!("layer {layer}"));
    let mut lines = match event.kind {
        EventKind::PageMove { link, layer, group, n_pages, bytes, cause } => {
            let rate = (ns > 0).then(|| format!("{}/s", Bytes((bytes as f64 / (ns as f64 / 1e9)) as u64)));
            let place = format!("layer {layer}, pages from {group}");
            vec![
                format!("{} for {}", link.name(), cause.name()),
                format!("{} in {n_pages} {}", Bytes(bytes), if n_pages == 1 { "page" } else { "pages" }),
                rate.unwrap_or_else(|| "N/A".to_owned()),
                place,
            ]
        }
        EventKind::Wait { cause } => vec![format!("wait for {}", cause.name())],
        EventKind::GpuPass { family, layer: of, estimated } => {
            let known = if estimated { "~ timed by the CPU" } else { "measured by the device" };
            let what = match family {
                KernelFamily::Other => "GPU work that was not taken apart: one step of sixteen is".to_owned(),
                _ => format!("GPU {}", family.name()),
            };
            [Some(what), layer(of), Some(known.to_owned())].into_iter().flatten().collect()
        }
        EventKind::Encode => vec!["CPU records and submits".to_owned()],
        EventKind::Select { layer: of } => [Some("policy chooses".to_owned()), layer(of)].into_iter().flatten().collect(),
        EventKind::Step { kind, first_token, n_tokens } => {
            vec![
                format!("{} step", kind.name()),
                format!("{} from position {first_token}", format::tokens(n_tokens as usize, true)),
            ]
        }
        EventKind::Recompute { n_tokens, layer: of } => {
            let tokens = format!("{} of K,V, over layers", format::tokens(n_tokens as usize, true));
            [Some("recompute".to_owned()), Some(tokens), layer(of)].into_iter().flatten().collect()
        }
        EventKind::Phase(phase) => vec![phase.name().to_owned()],
        EventKind::Fault { kind } => vec![format!("fault: {}", kind.name())],
        EventKind::Pages { .. } | EventKind::Tier { .. } | EventKind::Overlap { .. } | EventKind::Mass { .. } => Vec::new(),
    };
    lines.insert(lines.len().min(1), duration(ns));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (18_345_678, "18.3 ms"),
            (1_200_000_000, "1.20 s"),
            (61_000_000_000, "61.0 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(share_of(5_000_000, 20_000_000), "5.00 ms (25 %)");
        assert_eq!(share_of(5_000_000, 0), "5.00 ms");
    }

    #[test]
    fn marks_have_the_digits_that_tell_them_apart() {
        assert_eq!(mark(1_500_000_000, 500_000_000), "1.5 s");
        assert_eq!(mark(30_000_000, 10_000_000), "0.03 s");
        assert_eq!(mark(20_000_000_000, 10_000_000_000), "20 s");
        assert_eq!(mark(20_050_000, 50_000), "20.05 ms");
        assert_eq!(mark(200, 100), "0.2 µs");
    }
}
