//! File of page abstracts: one row of all layers per group, with its checksum in the entry of the group.
//!
//! ```text
//! abstracts: row of group 0 │ row of group 1 │ ...      row = layer 0 │ layer 1 │ ...   (abstract_bytes each)
//! ```
//! The file is small, and is read whole through the page cache when a document is opened. A row with a wrong checksum
//! is recomputed from its pages.

use crate::base::Bytes;
use crate::kv::store::error::StoreError;
use crate::kv::store::format::{PageId, abstract_sum};
use crate::kv::store::page_store::{ABSTRACTS_NAME, PageStore};
use crate::kv::store::storage::{read_exact, write_all};

impl PageStore {
    /// Writes the abstracts of a group, all layers. Call it before the commit that makes the group visible.
    ///
    /// # Errors
    /// A row of the wrong size, or an error of the disk.
    pub fn put_abstracts(&mut self, group: u32, row: &[u8]) -> Result<(), StoreError> {
        self.check_open()?;
        let expected = self.geometry.abstract_row_bytes;
        let wrong_size = StoreError::WrongSize { got: Bytes(row.len() as u64), expected: Bytes(expected) };
        let Some(storage) = self.abstracts.clone().filter(|_| row.len() as u64 == expected) else { return Err(wrong_size) };
        let Some(hash) = self.tokens.group_hash(group) else { return Err(self.out_of_range(PageId::kv(0, group))) };
        let sum = abstract_sum(self.store_id, group, hash, row);
        write_all(&*storage, row, u64::from(group) * expected)
            .map_err(|e| StoreError::from_io("write", ABSTRACTS_NAME, expected, e))?;
        if let Some(group) = self.groups.get_mut(group as usize) {
            (group.abstract_sum, group.is_dirty) = (sum, true);
        }
        Ok(())
    }

    /// The abstracts of all groups, row by row, and which rows are intact. Reads the whole file.
    ///
    /// # Errors
    /// An error of the disk, other than a truncated file.
    pub fn read_abstracts(&self) -> Result<(Vec<u8>, Vec<bool>), StoreError> {
        let row_bytes = self.geometry.abstract_row_bytes as usize;
        let mut rows = vec![0; self.groups.len() * row_bytes];
        let Some(storage) = self.abstracts.as_ref().filter(|_| row_bytes > 0) else {
            return Ok((Vec::new(), vec![false; self.groups.len()]));
        };
        let io_error = |e| StoreError::from_io("read", ABSTRACTS_NAME, 0, e);
        let len = usize::try_from(storage.len().map_err(io_error)?).unwrap_or(usize::MAX).min(rows.len());
        read_exact(&**storage, rows.get_mut(..len).unwrap_or_default(), 0).map_err(io_error)?;
        let is_intact = |(group, row): (u32, &[u8])| {
            let sum = self.groups.get(group as usize).map_or(0, |g| g.abstract_sum);
            let hash = self.tokens.group_hash(group);
            sum != 0 && hash.is_some_and(|h| abstract_sum(self.store_id, group, h, row) == sum)
        };
        let intact = (0..).zip(rows.chunks_exact(row_bytes)).map(is_intact).collect();
        Ok((rows, intact))
    }
}
