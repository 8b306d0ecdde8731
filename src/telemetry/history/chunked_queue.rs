//! Queue of chunks of equal length: grows at the back without copying, frees memory at the front.
//!
//! 1. Every chunk but the last is full, so the position of an item follows from its index.
//! 2. Memory comes in whole chunks: [`ChunkedQueue::bytes`] is exact.

use std::collections::VecDeque;

/// Items of one chunk.
pub const CHUNK_LEN: usize = 256;

/// A queue in chunks.
#[derive(Debug, Clone)]
pub struct ChunkedQueue<T> {
    chunks: VecDeque<Vec<T>>,
}

impl<T> Default for ChunkedQueue<T> {
    fn default() -> Self {
        ChunkedQueue { chunks: VecDeque::new() }
    }
}

impl<T> ChunkedQueue<T> {
    /// Bytes of a chunk.
    pub const CHUNK_BYTES: usize = CHUNK_LEN * size_of::<T>();

    /// Number of items.
    pub fn len(&self) -> usize {
        let last = self.chunks.back().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK_LEN + last
    }

    /// Memory of the items, bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * Self::CHUNK_BYTES
    }

    /// Number of chunks.
    pub fn n_chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The `i`th item from the front.
    pub fn get(&self, i: usize) -> Option<&T> {
        self.chunks.get(i / CHUNK_LEN)?.get(i % CHUNK_LEN)
    }

    /// The first item.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last item.
    pub fn last(&self) -> Option<&T> {
        self.chunks.back()?.last()
    }

    /// Adds an item at the back.
    pub fn push(&mut self, item: T) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK_LEN => chunk.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                chunk.push(item);
                self.chunks.push_back(chunk);
            }
        }
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.chunks.back_mut()?;
        let item = last.pop();
        if last.is_empty() {
            self.chunks.pop_back();
        }
        item
    }

    /// Removes the first chunk.
    pub fn drop_chunk(&mut self) -> Option<Vec<T>> {
        self.chunks.pop_front()
    }

    /// The first chunk.
    pub fn first_chunk(&self) -> Option<&[T]> {
        self.chunks.front().map(Vec::as_slice)
    }

    /// Number of items at the front for which `is_before` holds; the items must be partitioned by it.
    pub fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        let n_chunks = self.chunks.partition_point(|chunk| chunk.first().is_some_and(&mut is_before));
        let Some(i) = n_chunks.checked_sub(1) else { return 0 };
        i * CHUNK_LEN + self.chunks.get(i).map_or(0, |chunk| chunk.partition_point(is_before))
    }

    /// Items from the `i`th on.
    pub fn iter_from(&self, i: usize) -> impl Iterator<Item = &T> {
        let skip = i % CHUNK_LEN;
        let rest = self.chunks.range((i / CHUNK_LEN).min(self.chunks.len())..);
        rest.enumerate().flat_map(move |(n, chunk)| chunk.get(if n == 0 { skip } else { 0 }..).unwrap_or_default())
    }
}
