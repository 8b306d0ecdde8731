//! Document parts: the tokens of a prompt that belong to the store of each document.
//!
//! ```text
//! prompt  │ template, document 1 ......│ document 2 .......│ document 3 ........│ question
//! groups  │ 0 │ 1 │ ...                │ 7 │ 8 │ ...       │ 12 │ 13 │ ...
//! parts   │ document 1: groups 0 to 6   │ 2 after 1: 7 to 11 │ 3 after 1 and 2
//! ```
//! 1. A part begins with a whole group. The tokens of a group that two documents share belong to the later one.
//! 2. Any prompt that begins with the same documents has the same parts for them, so they are saved once.
//! 3. A part is identified by model, settings, its tokens, and all tokens before it. The part of the first document is
//!    identified as every document was before parts existed.
//! 4. A document that is shorter than two groups has no part of its own: its tokens belong to the next part, if any.

use std::ops::Range;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::DocumentRef;
use crate::kv::store::StoreSpec;

/// Minimum tokens of a part: prefilling fewer takes less time than opening their store.
const MIN_PART_TOKENS: usize = 2 * KV_PAGE_TOKENS;
/// Digits of an id.
const ID_LEN: usize = 32;

/// Documents at the beginning of a prompt.
#[derive(Debug, Clone)]
pub(in crate::engine) struct DocumentTokens {
    /// tokens of the prompt up to the end of the last document
    pub(in crate::engine) tokens: Vec<u32>,
    /// documents in the order of the prompt, each with the number of tokens up to its end
    pub(in crate::engine) documents: Vec<(DocumentRef, usize)>,
    /// tokens before the first document; 0 if not counted
    pub(in crate::engine) n_head: usize,
    /// nothing of it may be reused from another position
    pub(in crate::engine) is_exact: bool,
}

/// The tokens of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct DocumentPart {
    /// name of the store
    pub(in crate::engine) id: String,
    /// identity of the store
    pub(in crate::engine) spec: StoreSpec,
    /// the last document of the part, as a position among the documents
    pub(in crate::engine) document: usize,
    /// tokens of the store in the prompt; begins at a group
    pub(in crate::engine) tokens: Range<usize>,
    /// number of tokens that no earlier part has
    pub(in crate::engine) n_new: usize,
}

impl DocumentPart {
    fn new(base: &StoreSpec, begins: &DocumentTokens, document: usize, tokens: Range<usize>, n_new: usize) -> DocumentPart {
        let mut spec = base.clone();
        if tokens.start > 0 {
            let before = begins.tokens.get(..tokens.start).unwrap_or_default();
            spec.settings_hash = settings_after(base, before);
        }
        let id = id(&spec, begins.tokens.get(tokens.clone()).unwrap_or_default());
        DocumentPart { id, spec, document, tokens, n_new }
    }

    /// Its groups in the context.
    pub(in crate::engine) fn groups(&self) -> Range<u32> {
        (self.tokens.start / KV_PAGE_TOKENS) as u32..(self.tokens.end / KV_PAGE_TOKENS) as u32
    }
}

impl DocumentTokens {
    /// The part of each document. None for a document that is too short.
    pub(in crate::engine) fn parts(&self, spec: &StoreSpec) -> Vec<DocumentPart> {
        let mut parts: Vec<DocumentPart> = Vec::new();
        for (document, (_, end)) in self.documents.iter().enumerate() {
            let before = parts.last().map_or(0, |part| part.tokens.end);
            let start = before / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
            if end.saturating_sub(before) >= MIN_PART_TOKENS {
                parts.push(DocumentPart::new(spec, self, document, start..*end, end - before));
            }
        }
        parts
    }

    /// All documents as one part: the form in which several documents were saved before parts existed.
    pub(in crate::engine) fn joined_part(&self, spec: &StoreSpec) -> DocumentPart {
        let n_tokens = self.tokens.len();
        DocumentPart::new(spec, self, self.documents.len().saturating_sub(1), 0..n_tokens, n_tokens)
    }
}

/// Hash of the settings of a store whose tokens follow those of `before`.
pub(super) fn settings_after(base: &StoreSpec, before: &[u32]) -> [u8; 32] {
    *blake3::Hasher::new().update(&base.settings_hash).update(bytemuck::cast_slice(before)).finalize().as_bytes()
}

/// Name of the store of these tokens.
fn id(spec: &StoreSpec, tokens: &[u32]) -> String {
    let mut hash = blake3::Hasher::new();
    for part in [&spec.model_hash, &spec.tokenizer_hash, &spec.settings_hash] {
        hash.update(part);
    }
    hash.update(bytemuck::cast_slice(tokens));
    hash.finalize().to_hex()[..ID_LEN].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> StoreSpec {
        StoreSpec {
            model_hash: [1; 32],
            tokenizer_hash: [2; 32],
            settings_hash: [3; 32],
            layout: "f16/page64".into(),
            n_layer: 2,
            kv_page_bytes: 4096,
            activation_page_bytes: 0,
            abstract_bytes: 0,
        }
    }

    fn begins(ends: &[usize]) -> DocumentTokens {
        let document = |i: usize| DocumentRef {
            content_hash: [i as u8; 32],
            name: format!("{i}.txt"),
            bytes: 1,
            pages: 1,
            end_byte: 0,
            save: true,
        };
        let n = ends.last().copied().unwrap_or(0);
        let tokens = (0..n as u32).map(|i| i * 7).collect();
        let documents = ends.iter().enumerate().map(|(i, end)| (document(i), *end)).collect();
        DocumentTokens { tokens, documents, n_head: 0, is_exact: false }
    }

    #[test]
    fn parts_of_a_longer_prompt_begin_with_those_of_a_shorter_one() {
        let all = begins(&[200, 400, 700]).parts(&spec());
        assert_eq!(all.iter().map(|p| p.tokens.clone()).collect::<Vec<_>>(), [0..200, 192..400, 384..700]);
        assert_eq!(all.iter().map(DocumentPart::groups).collect::<Vec<_>>(), [0..3, 3..6, 6..10]);
        assert_eq!(all.iter().map(|p| p.n_new).collect::<Vec<_>>(), [200, 200, 300]);
        assert_eq!(begins(&[200]).parts(&spec()), all[..1]);
        assert_eq!(begins(&[200, 400]).parts(&spec()), all[..2]);
        assert_eq!(begins(&[200]).joined_part(&spec()), all[0], "one document is saved as it was before");
        assert!(all.iter().all(|part| part.id != begins(&[200, 400, 700]).joined_part(&spec()).id));
    }

    #[test]
    fn part_is_another_after_other_tokens() {
        let one = begins(&[200, 400]);
        let mut other = one.clone();
        other.tokens[0] += 1;
        assert_eq!(one.parts(&spec())[1].tokens, other.parts(&spec())[1].tokens);
        assert_ne!(one.parts(&spec())[1].id, other.parts(&spec())[1].id);
        assert_ne!(one.parts(&spec())[1].spec, other.parts(&spec())[1].spec);
    }

    #[test]
    fn short_document_belongs_to_the_next_part() {
        let parts = begins(&[30, 400, 500, 900]).parts(&spec());
        let found: Vec<_> = parts.iter().map(|p| (p.document, p.tokens.clone(), p.n_new)).collect();
        assert_eq!(found, [(1, 0..400, 400), (3, 384..900, 500)]);
        assert!(begins(&[100]).parts(&spec()).is_empty() && begins(&[]).parts(&spec()).is_empty());
        assert_eq!(begins(&[400, 450]).parts(&spec()).len(), 1, "the end of the prompt is prefilled every time");
    }
}
