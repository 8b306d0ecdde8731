//! Copies between memories by several threads: one thread alone is slower than the link.
//!
//! On a card with a link of 48 GB/s, one thread wrote 7 GB/s into mapped buffers and four wrote 22. Pieces below
//! [`MIN_BYTES`], and machines below [`MIN_CORES`], gain nothing.

use rayon::prelude::*;

/// Smallest copy that is divided, bytes.
const MIN_BYTES: usize = 1 << 20;
/// Fewest cores with which a copy is divided.
const MIN_CORES: usize = 4;
/// Threads of one copy.
const N_THREADS: usize = 4;
/// Parts begin at multiples of this, bytes: whole cache lines, and aligned as mapped ranges must be.
const ALIGN_BYTES: usize = 64;

/// Bytes of each part of a copy of `n_bytes` on a machine with `n_cores`.
fn part_bytes(n_bytes: usize, n_cores: usize) -> usize {
    let n_parts = if n_bytes >= MIN_BYTES && n_cores >= MIN_CORES { N_THREADS } else { 1 };
    n_bytes.div_ceil(n_parts).next_multiple_of(ALIGN_BYTES)
}

/// True if several threads would copy this many bytes in all.
pub fn is_divided(n_bytes: u64) -> bool {
    n_bytes >= MIN_BYTES as u64 && rayon::current_num_threads() >= MIN_CORES
}

/// Calls `write` with each of `rows` and its index, on several threads at once if they are many bytes.
///
/// # Errors
/// One of those of `write`.
pub(super) fn write_rows<E: Send>(rows: &[&[u8]], write: impl Fn(usize, &[u8]) -> Result<(), E> + Sync) -> Result<(), E> {
    let n_bytes: usize = rows.iter().map(|row| row.len()).sum();
    if !is_divided(n_bytes as u64) {
        return rows.iter().enumerate().try_for_each(|(i, row)| write(i, row));
    }
    let least = rows.len().div_ceil(N_THREADS);
    rows.par_iter().with_min_len(least).enumerate().try_for_each(|(i, row)| write(i, row))
}

/// Copies `rows` of `row_bytes` each to `to`, which has room for all of them.
#[cfg(any(test, target_os = "linux", windows))]
pub(super) fn copy_rows(rows: &[&[u8]], row_bytes: usize, to: &mut [u8]) {
    let pairs = |(to, row): (&mut [u8], &&[u8])| to.copy_from_slice(row);
    if !is_divided(to.len() as u64) {
        to.chunks_exact_mut(row_bytes).zip(rows).for_each(pairs);
        return;
    }
    let least = rows.len().div_ceil(N_THREADS);
    to.par_chunks_exact_mut(row_bytes).with_min_len(least).zip(rows).for_each(pairs);
}

/// Calls `write` with each part of `bytes` and its offset, on several threads at once if they are many.
///
/// # Errors
/// One of those of `write`.
pub(super) fn write_parts<E: Send>(bytes: &[u8], write: impl Fn(usize, &[u8]) -> Result<(), E> + Sync) -> Result<(), E> {
    let part = part_bytes(bytes.len(), rayon::current_num_threads());
    if bytes.len() <= part {
        return write(0, bytes);
    }
    bytes.par_chunks(part).enumerate().try_for_each(|(i, bytes)| write(i * part, bytes))
}

/// Copies `from` to `to`, which has the same length.
#[cfg(any(test, target_os = "linux", windows))]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    let part = part_bytes(from.len(), rayon::current_num_threads());
    if from.len() <= part {
        to.copy_from_slice(from);
        return;
    }
    to.par_chunks_mut(part).zip(from.par_chunks(part)).for_each(|(to, from)| to.copy_from_slice(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_copies_are_divided_if_there_are_cores_for_it() {
        assert_eq!(part_bytes(MIN_BYTES, MIN_CORES), MIN_BYTES / N_THREADS);
        assert_eq!(part_bytes(MIN_BYTES + 4, 16), (MIN_BYTES / N_THREADS) + ALIGN_BYTES);
        assert!(part_bytes(MIN_BYTES - 4, 16) >= MIN_BYTES - 4);
        assert!(part_bytes(64 << 20, 2) >= 64 << 20);
    }

    #[test]
    fn every_byte_of_a_divided_copy_arrives_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(MIN_CORES).build().unwrap();
        for n_bytes in [1, MIN_BYTES - 1, MIN_BYTES, MIN_BYTES + 4, 3 * MIN_BYTES + 20] {
            let from: Vec<u8> = (0..n_bytes).map(|i| (i * 31 % 251) as u8).collect();
            let mut to = vec![0; n_bytes];
            pool.install(|| copy(&from, &mut to));
            assert!(from == to, "{n_bytes}");
            let parts = std::sync::Mutex::new(Vec::new());
            let write = |at: usize, part: &[u8]| {
                assert!(part == &from[at..at + part.len()]);
                parts.lock().unwrap().push((at, part.len()));
                Ok::<(), ()>(())
            };
            pool.install(|| write_parts(&from, write)).unwrap();
            let mut parts = parts.into_inner().unwrap();
            parts.sort_unstable();
            assert_eq!(parts.len(), if n_bytes < MIN_BYTES { 1 } else { N_THREADS });
            assert!(parts.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0), "{parts:?}");
            assert_eq!(parts.iter().map(|(_, n)| n).sum::<usize>(), n_bytes);
        }
        let rows: Vec<Vec<u8>> = (0..9u8).map(|i| vec![i; MIN_BYTES / 8]).collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        for n_rows in [1, 3, 9] {
            let (rows, mut to) = (&rows[..n_rows], vec![0; n_rows * MIN_BYTES / 8]);
            assert_eq!(pool.install(|| is_divided(to.len() as u64)), n_rows == 9);
            pool.install(|| copy_rows(rows, MIN_BYTES / 8, &mut to));
            assert!(to == rows.concat());
            let written = std::sync::Mutex::new(Vec::new());
            let write = |i: usize, row: &[u8]| {
                assert!(row == rows[i]);
                written.lock().unwrap().push(i);
                Ok::<(), ()>(())
            };
            pool.install(|| write_rows(rows, write)).unwrap();
            let mut written = written.into_inner().unwrap();
            written.sort_unstable();
            assert!(written.into_iter().eq(0..n_rows));
        }
        assert_eq!(pool.install(|| write_parts(&vec![0; MIN_BYTES], |at, _| if at > 0 { Err(7) } else { Ok(()) })), Err(7));
    }
}
