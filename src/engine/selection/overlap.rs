//! Hides moving behind computing: theta for every layer, and what came of it.
//!
//! ```text
//! cost of the stream, time between layers ─► running means ─► LayerLoad ─► theta ─► this layer's stream
//!                                                               Forecast ─────────┴─► LayerOutcome, one layer later
//! ```
//! 1. Nothing travels packed before a link was measured, nor where codec costs more than it saves.
//!
//! Owner: the engine thread. Source: LeoAM, section 4.4 (see [`crate::kv::policy::leoam::pipeline`]).

use std::time::{Duration, Instant};

use crate::kv::policy::leoam::pipeline::{Forecast, LayerLoad, LayerOutcome, RunningRates};
use crate::kv::{StreamCost, VramCache};
use crate::telemetry::{ENGINE_LANE, EventKind, EventLane, Hub};

/// Weight of the newest layer in the running means.
const NEWEST_WEIGHT: f64 = 0.1;

/// What the layers before this one say about it.
pub(in crate::engine) struct OverlapController {
    rates: RunningRates,
    /// running means of a layer: computing, and waiting for RAM to have its pages, seconds
    compute_secs: Option<f64>,
    below_secs: Option<f64>,
    /// the layer whose stream is under way: since when, at what cost so far, what was expected of it
    last: Option<(Instant, StreamCost, u32, Forecast)>,
    lane: EventLane,
}

impl OverlapController {
    /// Nothing is known yet.
    pub fn new(hub: &Hub) -> OverlapController {
        OverlapController {
            rates: RunningRates::default(),
            compute_secs: None,
            below_secs: None,
            last: None,
            lane: hub.lane(ENGINE_LANE),
        }
    }

    /// Another answer begins: the time since the last layer says nothing.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// A layer's stream of `bytes` is about to begin: the share of it that should travel packed.
    pub fn theta(&mut self, kv: &KvCacheView, layer: usize, bytes: u64) -> f64 {
        let now = Instant::now();
        self.end_layer(now, &kv.cost);
        let forecast = self.forecast(kv, bytes);
        self.last = Some((now, kv.cost, layer as u32, forecast));
        forecast.theta
    }

    fn forecast(&mut self, kv: &KvCacheView, bytes: u64) -> Forecast {
        let Some(codec) = kv.codec else { return Forecast::default() };
        // Tested once, so that every observation is the same.
        self.rates.pack.observe(codec.quantize as u64, 1.0);
        self.rates.unpack.observe(codec.dequantize as u64, 1.0);
        let load = LayerLoad {
            disk_bytes: 0,
            ram_bytes: bytes,
            packed_ratio: codec.ratio,
            other_secs: self.below_secs.unwrap_or(0.0),
            compute_secs: self.compute_secs.unwrap_or(0.0),
        };
        self.rates.for_load(&load).map_or_else(Forecast::default, |rates| load.solve_theta(&rates))
    }

    /// The stream of the layer before is over.
    fn end_layer(&mut self, now: Instant, cost: &StreamCost) {
        let Some((began, before, layer, forecast)) = self.last.take() else { return };
        let since = |of: fn(&StreamCost) -> Duration| of(cost).saturating_sub(of(&before)).as_secs_f64();
        let compute_secs = (now.duration_since(began).as_secs_f64() - since(|c| c.waited)).max(0.0);
        let (below_secs, io_secs) = (since(|c| c.fetching), since(|c| c.filling));
        self.rates.pcie.observe(cost.transferred_bytes - before.transferred_bytes, since(|c| c.transferring));
        let mean = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + NEWEST_WEIGHT * (new - old)));
        self.compute_secs = mean(self.compute_secs, compute_secs);
        self.below_secs = mean(self.below_secs, below_secs);
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

/// What [`OverlapController`] needs to know of the cache.
pub(in crate::engine) struct KvCacheView {
    cost: StreamCost,
    codec: Option<crate::kv::CodecRates>,
}

impl KvCacheView {
    /// As it is now.
    pub fn of(kv: &VramCache) -> KvCacheView {
        KvCacheView { cost: kv.stream_cost(), codec: kv.codec_rates() }
    }
}
