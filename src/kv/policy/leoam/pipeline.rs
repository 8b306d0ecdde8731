//! How much of a layer's KV travels packed as INT4, so that moving it just hides behind computing.
//!
//! ```text
//! transfers, unpacking: bytes and seconds ─► RunningRates ─┐
//! bytes to move, compute time of the layer ─► LayerLoad ───┴─► theta ─► Forecast ┬─► what travels packed
//!                                                          measured afterwards ──┴─► LayerOutcome ─► telemetry
//! ```
//! 1. Theta is in 0..=1, and is the one that makes the layer shortest; where several do, the least, which loses least.
//! 2. Where theta is strictly inside, moving and computing take equally long.
//! 3. What was never measured is not guessed: there is no theta then.
//!
//! Owner thread: any; pure. Units: bytes as they are unpacked, seconds, bytes per second.
//!
//! Limits: unpacking takes time in proportion to its bytes, and all pages wait for the slower of the two links.
//!
//! Source: LeoAM, section 4.4: T0 + (D (1 - theta) + D theta delta) / B = Tc + t(D theta). The paper prints t(D delta), which
//! does not depend on what is solved for; section 4.4 itself introduces "the decompression time t(D theta)". CodecRates takes
//! time as well, which the paper leaves out: D theta / pack comes on the left. B is measured while running, packing and
//! unpacking beforehand, where the paper tests all of the hardware beforehand.

/// Weight of the newest measurement in a running rate.
const NEWEST_WEIGHT: f64 = 0.2;

/// What a layer has to move and to compute.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LayerLoad {
    /// D, the part that comes from the disk, bytes
    pub disk_bytes: u64,
    /// D, the part that is in RAM, bytes
    pub ram_bytes: u64,
    /// delta: packed bytes by unpacked ones
    pub packed_ratio: f64,
    /// T0: evaluation and transfers that come on top, seconds
    pub other_secs: f64,
    /// Tc: what the device computes meanwhile, seconds
    pub compute_secs: f64,
}

/// Speeds of the links and of unpacking, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LinkRates {
    /// disk to RAM
    pub nvme: f64,
    /// RAM to VRAM
    pub pcie: f64,
    /// working element to INT4, by unpacked bytes
    pub pack: f64,
    /// INT4 to the working element, by unpacked bytes
    pub unpack: f64,
}

/// A decision and what it is expected to cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Forecast {
    /// share of the bytes that travels packed
    pub theta: f64,
    /// evaluation and transfers, seconds
    pub io_secs: f64,
    /// computing and unpacking, seconds
    pub compute_secs: f64,
}

/// What was expected of a layer, and what it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LayerOutcome {
    /// model layer
    pub layer: u32,
    /// before it began
    pub forecast: Forecast,
    /// measured
    pub io_secs: f64,
    /// measured
    pub compute_secs: f64,
}

/// A rate that follows what is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningRate {
    bytes_per_sec: Option<f64>,
}

/// The rates that [`LayerLoad::solve_theta`] needs, as measured so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunningRates {
    /// disk to RAM
    pub nvme: RunningRate,
    /// RAM to VRAM
    pub pcie: RunningRate,
    /// working element to INT4
    pub pack: RunningRate,
    /// INT4 to the working element
    pub unpack: RunningRate,
}

impl RunningRate {
    /// Takes in that `bytes` took `secs`; a measurement of nothing, or of no time, says nothing.
    pub fn observe(&mut self, bytes: u64, secs: f64) {
        let newest = bytes as f64 / secs;
        if bytes == 0 || !newest.is_finite() || newest <= 0.0 {
            return;
        }
        let old = self.bytes_per_sec.unwrap_or(newest);
        self.bytes_per_sec = Some(old + NEWEST_WEIGHT * (newest - old));
    }

    /// Bytes per second; none before anything was measured.
    pub fn get(&self) -> Option<f64> {
        self.bytes_per_sec
    }
}

impl RunningRates {
    /// All of them, where those that the load needs were measured: a link that carries nothing need not be known.
    pub fn for_load(&self, load: &LayerLoad) -> Option<LinkRates> {
        let nvme = if load.disk_bytes == 0 { Some(f64::INFINITY) } else { self.nvme.get() };
        Some(LinkRates { nvme: nvme?, pcie: self.pcie.get()?, pack: self.pack.get()?, unpack: self.unpack.get()? })
    }
}

impl LayerLoad {
    /// D, bytes.
    pub fn bytes(&self) -> u64 {
        self.disk_bytes.saturating_add(self.ram_bytes)
    }

    /// Time that all pages take unpacked, D / B, seconds. What comes from the disk passes both links.
    fn plain_secs(&self, rates: &LinkRates) -> f64 {
        (self.disk_bytes as f64 / rates.nvme).max(self.bytes() as f64 / rates.pcie)
    }

    /// What `theta` is expected to cost.
    pub fn forecast(&self, theta: f64, rates: &LinkRates) -> Forecast {
        let packing_secs = theta * self.bytes() as f64 / rates.pack;
        Forecast {
            theta,
            io_secs: self.other_secs + self.plain_secs(rates) * (1.0 - theta * (1.0 - self.packed_ratio)) + packing_secs,
            compute_secs: self.compute_secs + theta * self.bytes() as f64 / rates.unpack,
        }
    }

    /// The share that should travel packed, and what the layer is then expected to cost.
    pub fn solve_theta(&self, rates: &LinkRates) -> Forecast {
        let plain = self.forecast(0.0, rates);
        let bubble_secs = plain.bubble_secs();
        let saved_secs = self.plain_secs(rates) * (1.0 - self.packed_ratio) - self.bytes() as f64 / rates.pack;
        let added_secs = self.bytes() as f64 / rates.unpack;
        // CodecRates that does not shorten the way only adds work.
        if !(bubble_secs > 0.0 && saved_secs > 0.0) {
            return plain;
        }
        self.forecast((bubble_secs / (saved_secs + added_secs)).min(1.0), rates)
    }
}

impl Forecast {
    /// Of `n_pages` equal pages, how many travel packed: rounded up, so that the way hides.
    pub fn n_packed(&self, n_pages: usize) -> usize {
        ((self.theta * n_pages as f64).ceil() as usize).min(n_pages)
    }

    /// Time that the device stands still, seconds.
    pub fn bubble_secs(&self) -> f64 {
        (self.io_secs - self.compute_secs).max(0.0)
    }
}

impl LayerOutcome {
    /// Time that the device stood still, seconds.
    pub fn bubble_secs(&self) -> f64 {
        (self.io_secs - self.compute_secs).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATES: LinkRates = LinkRates { nvme: 5e9, pcie: 20e9, pack: f64::INFINITY, unpack: 100e9 };

    fn load() -> LayerLoad {
        LayerLoad { disk_bytes: 50_000_000, ram_bytes: 50_000_000, packed_ratio: 0.28, other_secs: 1e-3, compute_secs: 8e-3 }
    }

    #[test]
    fn theta_makes_moving_as_long_as_computing() {
        let forecast = load().solve_theta(&RATES);
        // The disk's half is what takes longest: 1 ms + 10 ms (1 - 0.72 theta) = 8 ms + 1 ms theta.
        assert!((forecast.theta - 3.0 / 8.2).abs() < 1e-12, "{forecast:?}");
        assert!((forecast.io_secs - forecast.compute_secs).abs() < 1e-12, "{forecast:?}");
    }

    #[test]
    fn theta_is_none_of_it_where_moving_hides_anyway_or_nothing_moves() {
        for hidden in [
            LayerLoad { compute_secs: 1.0, ..load() },
            LayerLoad { disk_bytes: 0, ram_bytes: 0, ..load() },
            LayerLoad { disk_bytes: 0, ram_bytes: 0, other_secs: 1.0, ..load() },
            LayerLoad { packed_ratio: 1.0, ..load() },
        ] {
            assert_eq!(hidden.solve_theta(&RATES).theta, 0.0, "{hidden:?}");
        }
    }

    #[test]
    fn theta_is_none_of_it_where_packing_takes_longer_than_it_saves() {
        // 5 ns per byte are carried, of which 3.6 are saved.
        let slow = LinkRates { nvme: 2e8, ..RATES };
        assert!(load().solve_theta(&LinkRates { pack: 1e9, ..slow }).theta > 0.0);
        assert_eq!(load().solve_theta(&LinkRates { pack: 2e8, ..slow }).theta, 0.0);
    }

    #[test]
    fn theta_is_all_of_it_where_even_that_does_not_hide() {
        let slow = load().solve_theta(&LinkRates { nvme: 1e8, ..RATES });
        assert_eq!(slow.theta, 1.0);
        assert!(slow.bubble_secs() > 0.0);
        assert_eq!((slow.n_packed(7), slow.n_packed(0)), (7, 0));
        assert_eq!(Forecast { theta: 0.01, ..slow }.n_packed(7), 1);
    }

    #[test]
    fn running_rate_follows_and_ignores_what_says_nothing() {
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
    fn rates_are_known_once_the_links_in_use_were_measured() {
        let mut rates = RunningRates::default();
        rates.pcie.observe(1000, 1.0);
        rates.pack.observe(1000, 1.0);
        rates.unpack.observe(1000, 1.0);
        assert_eq!(rates.for_load(&load()), None);
        assert!(rates.for_load(&LayerLoad { disk_bytes: 0, ..load() }).is_some());
        rates.nvme.observe(1000, 1.0);
        assert_eq!(rates.for_load(&load()), Some(LinkRates { nvme: 1000.0, pcie: 1000.0, pack: 1000.0, unpack: 1000.0 }));
    }

    #[test]
    fn outcome_bubble_is_what_moving_took_longer() {
        let outcome = LayerOutcome { io_secs: 3.0, compute_secs: 1.0, ..LayerOutcome::default() };
        assert_eq!(outcome.bubble_secs(), 2.0);
        assert_eq!(LayerOutcome { io_secs: 0.5, ..outcome }.bubble_secs(), 0.0);
    }

    prop_compose! {
        fn any_load()(
            disk_bytes in 0u64..1 << 30, ram_bytes in 0u64..1 << 30, packed_ratio in 0.1f64..1.2, other_secs in 0.0f64..0.05,
            compute_secs in 0.0f64..0.2,
        ) -> LayerLoad {
            LayerLoad { disk_bytes, ram_bytes, packed_ratio, other_secs, compute_secs }
        }
    }

    prop_compose! {
        fn any_rates()(
            nvme in 1e8f64..1e10, pcie in 1e9f64..6e10, pack in 1e8f64..1e12, unpack in 1e9f64..1e12,
        ) -> LinkRates {
            LinkRates { nvme, pcie, pack, unpack }
        }
    }

    proptest! {
        #[test]
        fn theta_makes_the_layer_shortest(load in any_load(), rates in any_rates()) {
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
        fn theta_falls_as_links_are_faster_and_computing_is_longer(load in any_load(), rates in any_rates(), more in 1.0f64..4.0) {
            let share = |load: &LayerLoad, rates: &LinkRates| load.solve_theta(rates).theta;
            let now = share(&load, &rates) + 1e-12;
            let faster = LinkRates { nvme: rates.nvme * more, pcie: rates.pcie * more, ..rates };
            let slower_to_unpack = LinkRates { unpack: rates.unpack / more, ..rates };
            let longer = LayerLoad { compute_secs: load.compute_secs * more, ..load };
            let less_besides = LayerLoad { other_secs: load.other_secs / more, ..load };
            prop_assert!(share(&load, &faster) <= now);
            prop_assert!(share(&load, &slower_to_unpack) <= now);
            prop_assert!(share(&longer, &rates) <= now);
            prop_assert!(share(&less_besides, &rates) <= now);
        }
    }
}
