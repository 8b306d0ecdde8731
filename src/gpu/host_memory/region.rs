//! Regions of RAM that a device may read in place.

use std::sync::Arc;

use memmap2::MmapMut;

/// Bytes of the region of a first copy.
const CHECKED_REGION_BYTES: usize = 64 << 10;

/// Memory of this process that a device may read.
///
/// # Safety
/// The span is readable, and does not move or change its length, for as long as the value exists.
pub unsafe trait HostRegion: Send + Sync {
    /// Unique in this process.
    fn id(&self) -> u64;
    /// Address and length.
    fn span(&self) -> (*mut u8, usize);
}

/// Bytes of a region.
#[derive(Clone)]
pub struct HostSource {
    /// the region
    pub region: Arc<dyn HostRegion>,
    /// first byte
    pub offset: usize,
    /// number of bytes
    pub len: usize,
}

/// A region with a pattern, for a first copy.
pub(super) struct CheckedRegion(MmapMut);

impl CheckedRegion {
    /// # Errors
    /// No memory.
    pub fn new() -> Result<CheckedRegion, String> {
        let mut map = MmapMut::map_anon(CHECKED_REGION_BYTES).map_err(|e| e.to_string())?;
        map.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i as u32).wrapping_mul(2_654_435_761) >> 9) as u8);
        Ok(CheckedRegion(map))
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

// SAFETY: the mapping is never changed, and lasts as long as the value.
unsafe impl HostRegion for CheckedRegion {
    fn id(&self) -> u64 {
        u64::MAX
    }

    fn span(&self) -> (*mut u8, usize) {
        (self.0.as_ptr().cast_mut(), self.0.len())
    }
}
