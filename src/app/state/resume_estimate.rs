//! Resume estimates: the saved KV that fits the loaded model, the time to load it, and the tiers that a KV cache needs.
//!
//! ```text
//! library, content hash, model, KV type ─► resumable() ─► resume_seconds(), rest_seconds()
//! KV bytes, budgets ─► place() ─► bytes per tier, or by how much it is too large
//! ```
//! Invariant: arithmetic only; every result is an estimate and is shown with `~`.

use crate::base::Tiers;
use crate::document::ContentHash;
use crate::engine::{KvDtype, ModelInfo, SavedDocument, SavedState};

/// Speed of the disk before a measurement, bytes per second: a slow NVMe drive.
const DISK_BYTES_PER_S: f64 = (1u64 << 30) as f64;

/// The saved KV of a text that `model` can use.
pub fn resumable<'a>(
    library: &'a [SavedDocument],
    text: ContentHash,
    model: &ModelInfo,
    kv_dtype: KvDtype,
) -> Option<&'a SavedDocument> {
    let hash = text.to_string();
    let usable = |d: &&SavedDocument| d.state != SavedState::Missing && d.saved_tokens > 0;
    library.iter().filter(usable).find(|d| d.content_hash == hash && d.model == model.name && d.kv_dtype == kv_dtype)
}

/// Share of a saved document that is prefilled, 0 to 1.
pub fn saved_share(saved: &SavedDocument) -> f32 {
    match saved.state {
        SavedState::Read => 1.0,
        SavedState::Missing => 0.0,
        SavedState::Partial => (saved.saved_tokens as f64 / saved.tokens.max(1) as f64).min(1.0) as f32,
    }
}

/// Time to load saved KV, at the measured speed of the disk in bytes per second if there is one.
pub fn resume_seconds(saved: &SavedDocument, disk_bytes_per_s: Option<f64>) -> f64 {
    saved.kv_bytes as f64 / disk_bytes_per_s.filter(|v| *v > 0.0).unwrap_or(DISK_BYTES_PER_S)
}

/// Time to prefill the rest of a saved document: at the current speed, else at that of its first part. None if neither is known.
pub fn rest_seconds(saved: &SavedDocument, tokens_per_s: Option<f64>) -> Option<f64> {
    let rest = saved.tokens.saturating_sub(saved.saved_tokens) as f64;
    if rest == 0.0 {
        return Some(0.0);
    }
    let speed = tokens_per_s.unwrap_or(saved.saved_tokens as f64 / saved.prefill_seconds);
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
    fn saved_document_is_resumable_by_the_same_text_model_and_type_only() {
        let (mut document, model) = (saved(SavedState::Read), model_info());
        let text = ContentHash([7; 32]);
        document.content_hash = text.to_string();
        document.model = model.name.clone();
        let found =
            |document: &SavedDocument, text, dtype| resumable(std::slice::from_ref(document), text, &model, dtype).is_some();
        assert!(found(&document, text, KvDtype::F16));
        assert!(!found(&document, ContentHash([8; 32]), KvDtype::F16));
        assert!(!found(&document, text, KvDtype::Q8));
        assert!(!found(&SavedDocument { model: "another".into(), ..document.clone() }, text, KvDtype::F16));
        assert!(!found(&SavedDocument { state: SavedState::Missing, ..document.clone() }, text, KvDtype::F16));
        assert!(found(&SavedDocument { state: SavedState::Partial, ..document }, text, KvDtype::F16));
    }

    #[test]
    fn time_to_resume_is_bytes_over_the_disks_speed() {
        let document = SavedDocument { kv_bytes: 3 << 30, ..saved(SavedState::Read) };
        assert_eq!(resume_seconds(&document, None), 3.0);
        assert_eq!(resume_seconds(&document, Some((6u64 << 30) as f64)), 0.5);
        assert_eq!(resume_seconds(&document, Some(0.0)), 3.0, "no speed is no measurement");
    }

    #[test]
    fn rest_of_a_document_takes_the_speed_of_now_or_of_the_time_before() {
        let half = SavedDocument { tokens: 2000, saved_tokens: 1000, prefill_seconds: 10.0, ..saved(SavedState::Partial) };
        assert_eq!(rest_seconds(&half, None), Some(10.0));
        assert_eq!(rest_seconds(&half, Some(500.0)), Some(2.0));
        assert_eq!(rest_seconds(&SavedDocument { saved_tokens: 0, prefill_seconds: 0.0, ..half.clone() }, None), None);
        assert_eq!(rest_seconds(&SavedDocument { saved_tokens: 2000, ..half }, None), Some(0.0));
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
