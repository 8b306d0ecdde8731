//! Token ids of a store, with the hash of every prefix that ends at a page group. Pure.
//!
//! Keys and values depend on all earlier tokens. So the hash of the whole prefix identifies a page, not that of its own
//! 64 tokens.

use crate::kv::store::format::PAGE_TOKENS;

const GROUP: usize = PAGE_TOKENS as usize;

/// Append-only list of token ids.
#[derive(Debug, Clone, Default)]
pub struct TokenLog {
    ids: Vec<u32>,
    hasher: blake3::Hasher,
    group_hashes: Vec<[u8; 16]>,
}

impl TokenLog {
    /// The log of `ids`.
    pub fn new(ids: &[u32]) -> Self {
        let mut log = TokenLog::default();
        log.extend(ids);
        log
    }

    /// Appends ids.
    pub fn extend(&mut self, ids: &[u32]) {
        let mut rest = ids;
        while !rest.is_empty() {
            let room = GROUP - self.ids.len() % GROUP;
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.hasher.update(&bytes_of(now));
            self.ids.extend_from_slice(now);
            if self.ids.len().is_multiple_of(GROUP) {
                let mut prefix = [0; 16];
                prefix.iter_mut().zip(self.hasher.finalize().as_bytes()).for_each(|(p, b)| *p = *b);
                self.group_hashes.push(prefix);
            }
            rest = later;
        }
    }

    /// Drops all but the first `n` ids.
    pub fn truncate(&mut self, n: usize) {
        if n < self.ids.len() {
            *self = TokenLog::new(self.ids.get(..n).unwrap_or_default());
        }
    }

    /// All ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Hash of all ids.
    pub fn hash(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }

    /// Number of complete groups.
    pub fn n_groups(&self) -> usize {
        self.group_hashes.len()
    }

    /// Hash of all ids up to the end of a complete group.
    pub fn group_hash(&self, group: u32) -> Option<&[u8; 16]> {
        self.group_hashes.get(group as usize)
    }
}

/// Token ids as bytes of the header file.
pub fn bytes_of(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// Inverse of [`bytes_of`]; ignores up to three bytes at the end.
pub fn ids_of(bytes: &[u8]) -> Vec<u32> {
    let (whole, _) = bytes.as_chunks::<4>();
    whole.iter().map(|four| u32::from_le_bytes(*four)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_hashes_are_the_same_however_the_ids_arrive() {
        let ids: Vec<u32> = (0..1000).map(|i| i * 7).collect();
        let whole = TokenLog::new(&ids);
        let mut pieces = TokenLog::default();
        ids.chunks(37).for_each(|c| pieces.extend(c));
        assert_eq!((whole.hash(), &whole.group_hashes), (pieces.hash(), &pieces.group_hashes));
        assert_eq!(whole.n_groups(), 15);
        pieces.truncate(130);
        assert_eq!((pieces.n_groups(), pieces.ids()), (2, &ids[..130]));
        assert_eq!(pieces.hash(), *blake3::hash(&bytes_of(&ids[..130])).as_bytes());
        assert_eq!(ids_of(&bytes_of(&ids)), ids);
    }

    #[test]
    fn one_other_id_changes_every_later_prefix_and_no_earlier_one() {
        let mut ids: Vec<u32> = (0..256).collect();
        let before = TokenLog::new(&ids);
        ids[70] += 1;
        let after = TokenLog::new(&ids);
        let same: Vec<bool> = (0..4).map(|g| before.group_hash(g) == after.group_hash(g)).collect();
        assert_eq!(same, [true, false, false, false]);
    }
}
