//! Compression ratio theta: fraction of the KV of a layer to transfer as INT4, so that compute hides the transfer.
//!
//! ```text
//! transfers, dequantization: bytes and seconds ─► RunningRates ─┐
//! bytes to transfer, compute time of the layer ─► LayerLoad ────┴─► theta ─► Forecast ┬─► pages to compress
//!                                                              measured afterwards ──┴─► LayerOutcome ─► telemetry
//! ```
//! 1. Theta is in 0..=1 and minimizes the time of the layer. Of several minima it is the smallest, with the least loss.
//! 2. If 0 < theta < 1, transfer and compute take equally long.
//! 3. An unmeasured rate is not guessed; then there is no theta.
//!
//! Owner thread: any; pure. Units: uncompressed bytes, seconds, bytes per second.
//!
//! Limits: dequantization time is proportional to its bytes, and all pages wait for the slower of the two links.
//!
//! Source: LeoAM §4.4: T0 + (D (1 - theta) + D theta delta) / B = Tc + t(D theta). The paper prints t(D delta), which
//! does not depend on theta; LeoAM §4.4 itself introduces "the decompression time t(D theta)". The paper omits the time
//! to compress; here D theta / quantize is added on the left. B is measured at run time, and the codec rates beforehand;
//! the paper measures all rates beforehand.

/// Weight of the newest measurement in a running rate.
const NEWEST_WEIGHT: f64 = 0.2;

/// Transfer and compute load of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LayerLoad {
    /// part of D on disk, bytes
    pub disk_bytes: u64,
    /// part of D in RAM, bytes
    pub ram_bytes: u64,
    /// delta: compressed bytes per uncompressed byte
    pub compressed_ratio: f64,
    /// T0: evaluation and additional transfers, seconds
    pub other_secs: f64,
    /// Tc: concurrent GPU compute, seconds
    pub compute_secs: f64,
}

/// Rates of the links and the codec, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LinkRates {
    /// disk to RAM
    pub nvme: f64,
    /// RAM to VRAM
    pub pcie: f64,
    /// quantization to INT4, uncompressed bytes
    pub quantize: f64,
    /// dequantization from INT4, uncompressed bytes
    pub dequantize: f64,
}

/// A value of theta and its expected cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Forecast {
    /// fraction of the bytes transferred compressed
    pub theta: f64,
    /// evaluation and transfers, seconds
    pub io_secs: f64,
    /// compute and dequantization, seconds
    pub compute_secs: f64,
}

/// Forecast and measurement of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LayerOutcome {
    /// model layer
    pub layer: u32,
    /// forecast before the layer began
    pub forecast: Forecast,
    /// measured transfer time, seconds
    pub io_secs: f64,
    /// measured compute time, seconds
    pub compute_secs: f64,
}

/// Running average of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningRate {
    bytes_per_sec: Option<f64>,
}

/// Measured rates for [`LayerLoad::solve_theta`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningRates {
    /// disk to RAM
    pub nvme: RunningRate,
    /// RAM to VRAM
    pub pcie: RunningRate,
    /// quantization to INT4
    pub quantize: RunningRate,
    /// dequantization from INT4
    pub dequantize: RunningRate,
}

impl RunningRate {
    /// Adds a measurement of `bytes` in `secs`. Ignores zero bytes and invalid times.
    pub fn observe(&mut self, bytes: u64, secs: f64) {
        let newest = bytes as f64 / secs;
        if bytes == 0 || !newest.is_finite() || newest <= 0.0 {
            return;
        }
        let old = self.bytes_per_sec.unwrap_or(newest);
        self.bytes_per_sec = Some(old + NEWEST_WEIGHT * (newest - old));
    }

    /// Bytes per second. None before the first measurement.
    pub fn get(&self) -> Option<f64> {
        self.bytes_per_sec
    }
}

impl RunningRates {
    /// All rates. None if the load needs an unmeasured rate; an unused link needs none.
    pub fn for_load(&self, load: &LayerLoad) -> Option<LinkRates> {
        let nvme = if load.disk_bytes == 0 { Some(f64::INFINITY) } else { self.nvme.get() };
        Some(LinkRates {
            nvme: nvme?,
            pcie: self.pcie.get()?,
            quantize: self.quantize.get()?,
            dequantize: self.dequantize.get()?,
        })
    }
}

impl LayerLoad {
    /// D, bytes.
    pub fn bytes(&self) -> u64 {
        self.disk_bytes.saturating_add(self.ram_bytes)
    }

    /// Transfer time without compression, D / B, seconds. Pages on disk pass both links.
    fn uncompressed_secs(&self, rates: &LinkRates) -> f64 {
        (self.disk_bytes as f64 / rates.nvme).max(self.bytes() as f64 / rates.pcie)
    }

    /// Expected cost of `theta`.
    pub fn forecast(&self, theta: f64, rates: &LinkRates) -> Forecast {
        let compress_secs = theta * self.bytes() as f64 / rates.quantize;
        Forecast {
            theta,
            io_secs: self.other_secs
                + self.uncompressed_secs(rates) * (1.0 - theta * (1.0 - self.compressed_ratio))
                + compress_secs,
            compute_secs: self.compute_secs + theta * self.bytes() as f64 / rates.dequantize,
        }
    }

    /// The optimal theta with its expected cost.
    pub fn solve_theta(&self, rates: &LinkRates) -> Forecast {
        let uncompressed = self.forecast(0.0, rates);
        let bubble_secs = uncompressed.bubble_secs();
        let saved_secs = self.uncompressed_secs(rates) * (1.0 - self.compressed_ratio) - self.bytes() as f64 / rates.quantize;
        let added_secs = self.bytes() as f64 / rates.dequantize;
        // Compression that does not shorten the transfer only adds work.
        if !(bubble_secs > 0.0 && saved_secs > 0.0) {
            return uncompressed;
        }
        self.forecast((bubble_secs / (saved_secs + added_secs)).min(1.0), rates)
    }
}

impl Forecast {
    /// Number of compressed pages among `n_pages` equal ones: rounded up, so that the transfer stays hidden.
    pub fn n_compressed(&self, n_pages: usize) -> usize {
        ((self.theta * n_pages as f64).ceil() as usize).min(n_pages)
    }

    /// Idle time of the GPU, seconds.
    pub fn bubble_secs(&self) -> f64 {
        (self.io_secs - self.compute_secs).max(0.0)
    }
}

impl LayerOutcome {
    /// Idle time of the GPU, seconds.
    pub fn bubble_secs(&self) -> f64 {
        (self.io_secs - self.compute_secs).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATES: LinkRates = LinkRates { nvme: 5e9, pcie: 20e9, quantize: f64::INFINITY, dequantize: 100e9 };

    fn load() -> LayerLoad {
        LayerLoad { disk_bytes: 50_000_000, ram_bytes: 50_000_000, compressed_ratio: 0.28, other_secs: 1e-3, compute_secs: 8e-3 }
    }

    #[test]
    fn theta_balances_transfer_and_compute() {
        let forecast = load().solve_theta(&RATES);
        // The disk part takes longest: 1 ms + 10 ms (1 - 0.72 theta) = 8 ms + 1 ms theta.
        assert!((forecast.theta - 3.0 / 8.2).abs() < 1e-12, "{forecast:?}");
        assert!((forecast.io_secs - forecast.compute_secs).abs() < 1e-12, "{forecast:?}");
    }

    #[test]
    fn theta_is_zero_if_the_transfer_is_hidden_or_empty() {
        for hidden in [
            LayerLoad { compute_secs: 1.0, ..load() },
            LayerLoad { disk_bytes: 0, ram_bytes: 0, ..load() },
            LayerLoad { disk_bytes: 0, ram_bytes: 0, other_secs: 1.0, ..load() },
            LayerLoad { compressed_ratio: 1.0, ..load() },
        ] {
            assert_eq!(hidden.solve_theta(&RATES).theta, 0.0, "{hidden:?}");
        }
    }

    #[test]
    fn theta_is_zero_if_compression_takes_longer_than_it_saves() {
        // The transfer takes 5 ns per byte; compression saves 3.6 of them.
        let slow = LinkRates { nvme: 2e8, ..RATES };
        assert!(load().solve_theta(&LinkRates { quantize: 1e9, ..slow }).theta > 0.0);
        assert_eq!(load().solve_theta(&LinkRates { quantize: 2e8, ..slow }).theta, 0.0);
    }

    #[test]
    fn theta_is_one_if_even_that_does_not_hide_the_transfer() {
        let slow = load().solve_theta(&LinkRates { nvme: 1e8, ..RATES });
        assert_eq!(slow.theta, 1.0);
        assert!(slow.bubble_secs() > 0.0);
        assert_eq!((slow.n_compressed(7), slow.n_compressed(0)), (7, 0));
        assert_eq!(Forecast { theta: 0.01, ..slow }.n_compressed(7), 1);
    }

    #[test]
    fn running_rate_averages_and_ignores_invalid_measurements() {
        let mut rate = RunningRate::default();
        for (bytes, secs) in [(0, 1.0), (5, 0.0), (5, f64::NAN), (5, -1.0), (0, 0.0)] {
            rate.observe(bytes, secs);
            assert_eq!(rate.get(), None, "{bytes} in {secs}");
        }
        rate.observe(100, 1.0);
        assert_eq!(rate.get(), Some(100.0));
        rate.observe(200, 1.0);
        assert_eq!(rate.get(), Some(120.0));
        (0..100).for_each(|_| rate.observe(200, 1.0));
        assert!((rate.get().unwrap() - 200.0).abs() < 1e-3);
    }

    #[test]
    fn rates_are_complete_once_the_used_links_were_measured() {
        let mut rates = RunningRates::default();
        rates.pcie.observe(1000, 1.0);
        rates.quantize.observe(1000, 1.0);
        rates.dequantize.observe(1000, 1.0);
        assert_eq!(rates.for_load(&load()), None);
        assert!(rates.for_load(&LayerLoad { disk_bytes: 0, ..load() }).is_some());
        rates.nvme.observe(1000, 1.0);
        assert_eq!(rates.for_load(&load()), Some(LinkRates { nvme: 1000.0, pcie: 1000.0, quantize: 1000.0, dequantize: 1000.0 }));
    }

    #[test]
    fn outcome_bubble_is_transfer_time_beyond_compute() {
        let outcome = LayerOutcome { io_secs: 3.0, compute_secs: 1.0, ..LayerOutcome::default() };
        assert_eq!(outcome.bubble_secs(), 2.0);
        assert_eq!(LayerOutcome { io_secs: 0.5, ..outcome }.bubble_secs(), 0.0);
    }

    prop_compose! {
        fn any_load()(
            disk_bytes in 0u64..1 << 30, ram_bytes in 0u64..1 << 30, compressed_ratio in 0.1f64..1.2, other_secs in 0.0f64..0.05,
            compute_secs in 0.0f64..0.2,
        ) -> LayerLoad {
            LayerLoad { disk_bytes, ram_bytes, compressed_ratio, other_secs, compute_secs }
        }
    }

    prop_compose! {
        fn any_rates()(
            nvme in 1e8f64..1e10, pcie in 1e9f64..6e10, quantize in 1e8f64..1e12, dequantize in 1e9f64..1e12,
        ) -> LinkRates {
            LinkRates { nvme, pcie, quantize, dequantize }
        }
    }

    proptest! {
        #[test]
        fn theta_minimizes_the_time_of_the_layer(load in any_load(), rates in any_rates()) {
            let best = load.solve_theta(&rates);
            prop_assert!((0.0..=1.0).contains(&best.theta));
            let secs = |forecast: Forecast| forecast.io_secs.max(forecast.compute_secs);
            for percent in 0..=100u32 {
                let other = load.forecast(f64::from(percent) / 100.0, &rates);
                prop_assert!(secs(best) <= secs(other) * (1.0 + 1e-9), "{:?} is longer than {:?}", best, other);
            }
            if best.theta > 0.0 && best.theta < 1.0 {
                prop_assert!((best.io_secs - best.compute_secs).abs() <= 1e-9 * best.io_secs, "{:?}", best);
            }
        }

        #[test]
        fn theta_decreases_with_faster_links_and_longer_compute(load in any_load(), rates in any_rates(), factor in 1.0f64..4.0) {
            let share = |load: &LayerLoad, rates: &LinkRates| load.solve_theta(rates).theta;
            let now = share(&load, &rates) + 1e-12;
            let faster = LinkRates { nvme: rates.nvme * factor, pcie: rates.pcie * factor, ..rates };
            let slower_to_dequantize = LinkRates { dequantize: rates.dequantize / factor, ..rates };
            let longer = LayerLoad { compute_secs: load.compute_secs * factor, ..load };
            let less_other_time = LayerLoad { other_secs: load.other_secs / factor, ..load };
            prop_assert!(share(&load, &faster) <= now);
            prop_assert!(share(&load, &slower_to_dequantize) <= now);
            prop_assert!(share(&longer, &rates) <= now);
            prop_assert!(share(&less_other_time, &rates) <= now);
        }
    }
}
