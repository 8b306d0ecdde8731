//! Resume estimates: the time to load saved KV and to prefill the rest, and the tiers that a KV cache needs.
//!
//! ```text
//! SavedPrefix, measured speeds ─► resume_seconds(), rest_seconds()
//! KV bytes, budgets ─► place() ─► bytes per tier, or by how much it is too large
//! ```
//! Invariant: arithmetic only; every result is an estimate and is shown with `~`.

use crate::app::state::saved_prefix::SavedPrefix;
use crate::base::Tiers;
use crate::engine::{KvDtype, ModelInfo, SavedDocument, SavedState};

/// Speed of the disk before a measurement, bytes per second: a slow NVMe drive.
const DISK_BYTES_PER_S: f64 = (1u64 << 30) as f64;

/// Share of a saved document that is prefilled, 0 to 1.
pub fn saved_share(saved: &SavedDocument) -> f32 {
    match saved.state {
        SavedState::Read => 1.0,
        SavedState::Missing => 0.0,
        SavedState::Partial => (saved.saved_tokens as f64 / saved.tokens.max(1) as f64).min(1.0) as f32,
    }
}

/// Time to load saved KV, at the measured speed of the disk in bytes per second if there is one.
pub fn resume_seconds(kv_bytes: u64, disk_bytes_per_s: Option<f64>) -> f64 {
    kv_bytes as f64 / disk_bytes_per_s.filter(|v| *v > 0.0).unwrap_or(DISK_BYTES_PER_S)
}

/// Time to prefill the rest of `n_tokens` after a saved prefix: at the current speed, else at that of the prefix. None if neither
/// is known.
pub fn rest_seconds(saved: &SavedPrefix, n_tokens: usize, tokens_per_s: Option<f64>) -> Option<f64> {
    let rest = if saved.is_complete { 0.0 } else { n_tokens.saturating_sub(saved.n_tokens) as f64 };
    if rest == 0.0 {
        return Some(0.0);
    }
    let speed = tokens_per_s.unwrap_or(saved.n_tokens as f64 / saved.prefill_seconds);
    (speed.is_finite() && speed > 0.0).then(|| rest / speed)
}

/// Speed at which `model` prefilled its most recent document, tokens per second. None if there is none.
pub fn speed_before(library: &[SavedDocument], model: &ModelInfo, kv_dtype: KvDtype) -> Option<f64> {
    let read_by_it = |d: &&SavedDocument| d.model == model.name && d.kv_dtype == kv_dtype && d.prefill_seconds > 0.0;
    let last = library.iter().filter(read_by_it).max_by_key(|d| d.last_used)?;
    Some(last.saved_tokens as f64 / last.prefill_seconds).filter(|speed| *speed > 0.0)
}

/// Placement of a document's KV in the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// bytes in each tier
    Fits(Tiers<u64>),
    /// larger than all budgets together
    TooLarge {
        /// sum of the budgets, bytes
        room: u64,
    },
}

/// Fills the tiers from the fastest down.
pub fn place(kv_bytes: u64, budgets: Tiers<u64>) -> Placement {
    let vram = kv_bytes.min(budgets.vram);
    let ram = (kv_bytes - vram).min(budgets.ram);
    let disk = (kv_bytes - vram - ram).min(budgets.disk);
    if vram + ram + disk < kv_bytes {
        return Placement::TooLarge { room: vram + ram + disk };
    }
    Placement::Fits(Tiers { vram, ram, disk })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::app::test_support::{model_info, saved};

    #[test]
    fn time_to_resume_is_bytes_over_the_disks_speed() {
        assert_eq!(resume_seconds(3 << 30, None), 3.0);
        assert_eq!(resume_seconds(3 << 30, Some((6u64 << 30) as f64)), 0.5);
        assert_eq!(resume_seconds(3 << 30, Some(0.0)), 3.0, "no speed is no measurement");
    }

    #[test]
    fn rest_of_a_document_takes_the_speed_of_now_or_of_the_time_before() {
        let half = SavedPrefix { n_tokens: 1000, kv_bytes: 0, prefill_seconds: 10.0, is_complete: false };
        assert_eq!(rest_seconds(&half, 2000, None), Some(10.0));
        assert_eq!(rest_seconds(&half, 2000, Some(500.0)), Some(2.0));
        assert_eq!(rest_seconds(&SavedPrefix::default(), 2000, None), None);
        assert_eq!(rest_seconds(&SavedPrefix { is_complete: true, ..half }, 2000, None), Some(0.0));
    }

    #[test]
    fn speed_of_the_time_before_is_that_of_the_same_model() {
        let model = model_info();
        let read = |model: &str, saved_tokens, last_used| SavedDocument {
            model: model.into(),
            saved_tokens,
            prefill_seconds: 10.0,
            last_used,
            ..saved(SavedState::Read)
        };
        let library = [read(&model.name, 1000, 5), read(&model.name, 4000, 9), read("another", 9000, 10)];
        assert_eq!(speed_before(&library, &model, KvDtype::F16), Some(400.0));
        assert_eq!(speed_before(&library, &model, KvDtype::Q8), None);
        assert_eq!(speed_before(&library[2..], &model, KvDtype::F16), None);
    }

    proptest! {
        #[test]
        fn placement_fills_the_faster_tier_first_and_loses_no_byte(
            kv in 0u64..1 << 40, vram in 0u64..1 << 38, ram in 0u64..1 << 38, disk in 0u64..1 << 38
        ) {
            match place(kv, Tiers { vram, ram, disk }) {
                Placement::Fits(at) => {
                    prop_assert_eq!(at.vram + at.ram + at.disk, kv);
                    prop_assert!(at.vram <= vram && at.ram <= ram && at.disk <= disk);
                    prop_assert!(at.ram == 0 || at.vram == vram);
                    prop_assert!(at.disk == 0 || at.ram == ram);
                }
                Placement::TooLarge { room } => {
                    prop_assert_eq!(room, vram + ram + disk);
                    prop_assert!(room < kv);
                }
            }
        }
    }
}
