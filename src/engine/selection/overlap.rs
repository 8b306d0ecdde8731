//! Overlap of transfers and compute: theta of every layer, and its measured outcome.
//!
//! ```text
//! cost of the stream, time between layers ─► running means ─► LayerLoad ─► theta ─► this layer's stream
//!                                                               Forecast ─────────┴─► LayerOutcome, one layer later
//! ```
//! 1. No page is compressed before the link is measured, nor if the codec costs more than it saves.
//!
//! Owner: the engine thread. Source: LeoAM §4.4 (see [`crate::kv::policy::leoam::pipeline`]).

use std::time::{Duration, Instant};

use crate::kv::policy::leoam::pipeline::{Forecast, LayerLoad, LayerOutcome, RunningRates};
use crate::kv::{StreamCost, VramCache};
use crate::telemetry::{ENGINE_LANE, EventKind, EventLane, Hub};

/// Weight of the newest layer in the running means.
const NEWEST_WEIGHT: f64 = 0.1;

/// Controller of theta, by running means over earlier layers.
pub(in crate::engine) struct OverlapController {
    rates: RunningRates,
    /// running means per layer: compute, and fetching of its pages to RAM, seconds
    compute_secs: Option<f64>,
    fetch_secs: Option<f64>,
    /// current layer: start of its stream, cost at that time, layer index, forecast
    last: Option<(Instant, StreamCost, u32, Forecast)>,
    lane: EventLane,
}

impl OverlapController {
    /// A controller without measurements.
    pub fn new(hub: &Hub) -> OverlapController {
        OverlapController {
            rates: RunningRates::default(),
            compute_secs: None,
            fetch_secs: None,
            last: None,
            lane: hub.lane(ENGINE_LANE),
        }
    }

    /// Begins another answer: the time since the last layer is not measured.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Theta for a layer's stream of `bytes`, which is about to start: the fraction to compress.
    pub fn theta(&mut self, kv: &KvCacheView, layer: usize, bytes: u64) -> f64 {
        let now = Instant::now();
        self.end_layer(now, &kv.cost);
        let forecast = self.forecast(kv, bytes);
        self.last = Some((now, kv.cost, layer as u32, forecast));
        forecast.theta
    }

    fn forecast(&mut self, kv: &KvCacheView, bytes: u64) -> Forecast {
        let Some(codec) = kv.codec else { return Forecast::default() };
        // The codec is benchmarked once, so every observation is the same.
        self.rates.quantize.observe(codec.quantize as u64, 1.0);
        self.rates.dequantize.observe(codec.dequantize as u64, 1.0);
        let load = LayerLoad {
            disk_bytes: 0,
            ram_bytes: bytes,
            compressed_ratio: codec.ratio,
            other_secs: self.fetch_secs.unwrap_or(0.0),
            compute_secs: self.compute_secs.unwrap_or(0.0),
        };
        self.rates.for_load(&load).map_or_else(Forecast::default, |rates| load.solve_theta(&rates))
    }

    /// Records the outcome of the previous layer.
    fn end_layer(&mut self, now: Instant, cost: &StreamCost) {
        let Some((began, before, layer, forecast)) = self.last.take() else { return };
        let since = |of: fn(&StreamCost) -> Duration| of(cost).saturating_sub(of(&before)).as_secs_f64();
        let compute_secs = (now.duration_since(began).as_secs_f64() - since(|c| c.waited)).max(0.0);
        let (fetch_secs, io_secs) = (since(|c| c.fetching), since(|c| c.filling));
        self.rates.pcie.observe(cost.transferred_bytes - before.transferred_bytes, since(|c| c.transferring));
        let mean = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + NEWEST_WEIGHT * (new - old)));
        self.compute_secs = mean(self.compute_secs, compute_secs);
        self.fetch_secs = mean(self.fetch_secs, fetch_secs);
        self.lane.instant(event(&LayerOutcome { layer, forecast, io_secs, compute_secs }));
    }
}

fn event(outcome: &LayerOutcome) -> EventKind {
    let micros = |secs: f64| (secs * 1e6).min(f64::from(u32::MAX)) as u32;
    let LayerOutcome { layer, forecast, io_secs, compute_secs } = *outcome;
    EventKind::Overlap {
        layer,
        theta_permille: (forecast.theta * 1e3).round() as u32,
        expected_io_us: micros(forecast.io_secs),
        io_us: micros(io_secs),
        expected_compute_us: micros(forecast.compute_secs),
        compute_us: micros(compute_secs),
    }
}

/// State of the cache for [`OverlapController`].
pub(in crate::engine) struct KvCacheView {
    cost: StreamCost,
    codec: Option<crate::kv::CodecRates>,
}

impl KvCacheView {
    /// Current state.
    pub fn of(kv: &VramCache) -> KvCacheView {
        KvCacheView { cost: kv.stream_cost(), codec: kv.codec_rates() }
    }
}
