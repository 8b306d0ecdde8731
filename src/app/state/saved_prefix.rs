//! Saved prefix: how much of a chat's documents is saved, in their order, for the loaded model.
//!
//! ```text
//! library: A │ B after A │ C         chat A, B, C ─► A and B       chat C, A ─► C
//! ```
//! Invariant: a document counts only if every document before it is saved completely.

use crate::app::state::ViewState;
use crate::app::state::chat::{Chat, OpenDocument};
use crate::document::ContentHash;
use crate::engine::{KvDtype, SavedDocument, SavedState};

/// The KV of a document shorter than this is saved with the next document, tokens.
pub const MIN_SAVED_TOKENS: usize = 128;

/// Saved KV at the beginning of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SavedPrefix {
    /// saved tokens, from the first of the prompt on
    pub n_tokens: usize,
    /// their bytes on disk
    pub kv_bytes: u64,
    /// duration of their prefill
    pub prefill_seconds: f64,
    /// every document is saved completely
    pub is_complete: bool,
}

/// The model and KV type that saved KV must be of.
#[derive(Debug, Clone, Copy)]
pub struct SavedBy<'a> {
    /// name of the model
    pub model: &'a str,
    /// its KV type
    pub kv_dtype: KvDtype,
}

impl SavedBy<'_> {
    /// True if KV of the document can be loaded by this model.
    pub fn can_load(&self, saved: &SavedDocument) -> bool {
        saved.state != SavedState::Missing
            && saved.saved_tokens > 0
            && saved.model == self.model
            && saved.kv_dtype == self.kv_dtype
    }
}

impl SavedPrefix {
    /// Saved prefix of documents, given by the hash of each text and its tokens. `joined` is the hash of all texts as one.
    /// None if nothing is saved.
    pub fn of(
        library: &[SavedDocument],
        documents: &[(ContentHash, usize)],
        joined: ContentHash,
        by: SavedBy<'_>,
    ) -> Option<SavedPrefix> {
        let hashes: Vec<String> = documents.iter().map(|(hash, _)| hash.to_string()).collect();
        let find = |hash: &str, before: &[String]| {
            let is_after = |saved: &&SavedDocument| saved.after.iter().map(|d| &d.content_hash).eq(before);
            library.iter().filter(|saved| by.can_load(saved)).filter(is_after).find(|saved| saved.content_hash == hash)
        };
        if let Some(saved) = find(&joined.to_string(), &[]).filter(|_| documents.len() > 1) {
            return Some(SavedPrefix::default().and(saved));
        }
        let mut prefix = SavedPrefix { is_complete: true, ..SavedPrefix::default() };
        for (i, (hash, (_, n_tokens))) in hashes.iter().zip(documents).enumerate() {
            match find(hash, hashes.get(..i).unwrap_or_default()) {
                Some(saved) => prefix = prefix.and(saved),
                None => prefix.is_complete = *n_tokens < MIN_SAVED_TOKENS,
            }
            if !prefix.is_complete {
                break;
            }
        }
        (prefix.n_tokens > 0).then_some(prefix)
    }

    fn and(self, saved: &SavedDocument) -> SavedPrefix {
        SavedPrefix {
            n_tokens: self.n_tokens + saved.saved_tokens,
            kv_bytes: self.kv_bytes + saved.kv_bytes,
            prefill_seconds: self.prefill_seconds + saved.prefill_seconds,
            is_complete: saved.state == SavedState::Read,
        }
    }
}

impl ViewState {
    /// Model and KV type that are loaded.
    pub(in crate::app) fn saved_by(&self) -> Option<SavedBy<'_>> {
        Some(SavedBy { model: &self.info()?.name, kv_dtype: self.engine.load.kv_dtype })
    }

    /// Saved prefix of the current chat.
    pub fn saved_prefix(&self) -> Option<SavedPrefix> {
        self.saved_prefix_of(self.chat())
    }

    pub(in crate::app) fn saved_prefix_of(&self, chat: &Chat) -> Option<SavedPrefix> {
        let documents: Vec<(ContentHash, usize)> =
            chat.docs(&self.documents.list).map(|doc| (doc.content_hash, doc.tokens().0)).collect();
        SavedPrefix::of(self.library.as_deref()?, &documents, chat.content_hash?, self.saved_by()?)
    }

    /// True if all of the document is saved as the first of a prompt, for the loaded model.
    pub fn is_saved_alone(&self, doc: &OpenDocument) -> bool {
        let documents = [(doc.content_hash, doc.tokens().0)];
        let prefix = || SavedPrefix::of(self.library.as_deref()?, &documents, doc.content_hash, self.saved_by()?);
        prefix().is_some_and(|prefix| prefix.is_complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_support::saved;
    use crate::document::catalog::PrecedingDocument;

    fn hash(i: u8) -> ContentHash {
        ContentHash([i; 32])
    }

    fn entry(i: u8, after: &[u8], state: SavedState) -> SavedDocument {
        let after = after.iter().map(|i| PrecedingDocument { name: format!("{i}"), content_hash: hash(*i).to_string() });
        let (tokens, saved_tokens) = (1000, if state == SavedState::Partial { 400 } else { 1000 });
        let content_hash = hash(i).to_string();
        SavedDocument { content_hash, after: after.collect(), tokens, saved_tokens, kv_bytes: 10, ..saved(state) }
    }

    fn prefix(library: &[SavedDocument], documents: &[u8]) -> Option<(usize, bool)> {
        let documents: Vec<_> = documents.iter().map(|i| (hash(*i), if *i == 9 { 50 } else { 1000 })).collect();
        let by = SavedBy { model: &saved(SavedState::Read).model, kv_dtype: KvDtype::F16 };
        SavedPrefix::of(library, &documents, hash(100), by).map(|prefix| (prefix.n_tokens, prefix.is_complete))
    }

    #[test]
    fn documents_count_in_the_order_in_which_they_were_saved() {
        use SavedState::{Missing, Partial, Read};
        let library = [entry(1, &[], Read), entry(2, &[1], Read), entry(3, &[1, 2], Partial), entry(3, &[], Read)];
        for (documents, expected) in [
            (&[1][..], Some((1000, true))),
            (&[1, 2], Some((2000, true))),
            (&[1, 2, 3], Some((2400, false))),
            (&[1, 3], Some((1000, false))),
            (&[3, 1], Some((1000, false))),
            (&[2], None),
            (&[2, 1], None),
            (&[1, 9], Some((1000, true))),
            (&[9, 1], None),
            (&[], None),
        ] {
            assert_eq!(prefix(&library, documents), expected, "{documents:?}");
        }
        assert_eq!(prefix(&[entry(1, &[], Missing), entry(2, &[1], Read)], &[1, 2]), None);
        assert_eq!(prefix(&[entry(2, &[9], Read)], &[9, 2]), Some((1000, true)), "a short document is saved with the next");
    }

    #[test]
    fn documents_that_were_saved_as_one_text_count_together() {
        let joined = [entry(100, &[], SavedState::Partial)];
        assert_eq!(prefix(&joined, &[1, 2]), Some((400, false)));
        assert_eq!(prefix(&joined, &[1]), None);
    }

    #[test]
    fn saved_kv_is_of_one_model_and_type() {
        let (read, name) = (entry(1, &[], SavedState::Read), saved(SavedState::Read).model);
        let by = SavedBy { model: &name, kv_dtype: KvDtype::F16 };
        assert!(by.can_load(&read));
        assert!(!SavedBy { kv_dtype: KvDtype::Q8, ..by }.can_load(&read));
        assert!(!SavedBy { model: "another", ..by }.can_load(&read));
        assert!(!by.can_load(&SavedDocument { saved_tokens: 0, ..read }));
    }
}
