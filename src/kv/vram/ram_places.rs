//! RAM places: pages in RAM that kernels read where they are, and the regions of the RAM tier that have them.
//!
//! ```text
//! frames of the pool: 0 .. │ region │ region │ ... one numbering of frames; a region is a segment of all layers
//! ```
//! Invariant: the slabs of all places stay in use, so that what a submitted step reads does not move.

use std::collections::HashMap;
use std::sync::Arc;

use crate::gpu::{Gpu, GpuError, HostRegion, ReadableRegion, Slice};
use crate::kv::layout::BINDING_ALIGN_BYTES;
use crate::kv::offload::PageBytes;
use crate::kv::spec::{BLOCKS_PER_PAGE, KvSpec};

/// Frames in a region of the RAM tier, as many as one binding has.
pub struct RamSegment {
    /// their bytes
    pub pages: Slice,
    /// first frame, after those of the pool
    pub first_frame: usize,
    /// number of frames
    pub n_frames: usize,
}

/// Pages of a layer in one region, for attention over everything.
pub struct RamRun {
    /// index of the region
    pub segment: usize,
    /// block table u32 `[G, 4 n_pages]`
    pub table: Slice,
    /// number of pages
    pub n_pages: usize,
}

/// Runs of all layers, while neither frames nor places change.
#[derive(Default)]
struct RamRuns {
    /// by layer
    layers: Vec<Vec<RamRun>>,
    /// version of the frames and of the places; None: there are none
    of: Option<(u64, u64)>,
    /// changes with the runs
    version: u64,
}

/// Places of the pages of a context.
#[derive(Default)]
pub(super) struct RamPlaces {
    /// each with its first frame
    regions: Vec<(ReadableRegion, usize)>,
    segments: Vec<RamSegment>,
    /// changes with the segments
    version: u64,
    /// changes whenever slabs are taken or given up
    places_version: u64,
    /// keeps the slabs of all places in use
    slabs: Vec<PageBytes>,
    /// by layer, then page: frame in a region; None if the page is not in RAM
    frames: Vec<Vec<Option<u32>>>,
    /// version of the RAM tier, and number of pages; None: nothing is read in place
    of: Option<(u64, usize)>,
    runs: RamRuns,
    /// frames of the layer that was paged in last, by page
    paged_in: HashMap<u32, u32>,
    /// whether all pages can be read, as of these versions of the frames and of the RAM tier, and number of pages
    known: Option<(PlacesKey, bool)>,
}

/// Versions of the frames and of the RAM tier, and number of pages.
type PlacesKey = (u64, Option<u64>, usize);

/// Region of a page, by index, and its frame there.
type Place = (usize, usize);

impl RamPlaces {
    /// No places, after those of `before`.
    pub fn none_after(before: &RamPlaces) -> RamPlaces {
        let runs = RamRuns { version: before.runs.version + 1, ..RamRuns::default() };
        let (version, places_version) = (before.version + 1, before.places_version + 1);
        RamPlaces { version, places_version, runs, ..RamPlaces::default() }
    }

    /// True if there are places of this version and number of pages.
    pub fn are_of(&self, of: (u64, usize)) -> bool {
        self.of == Some(of)
    }

    /// Whether all pages can be read, if that is known.
    pub fn known(&self, now: PlacesKey) -> Option<bool> {
        self.known.filter(|(of, _)| *of == now).map(|(_, are_readable)| are_readable)
    }

    /// Remembers whether all pages can be read.
    pub fn set_known(&mut self, now: PlacesKey, are_readable: bool) {
        self.known = Some((now, are_readable));
    }

    /// True if there is anything to give up.
    pub fn is_any(&self) -> bool {
        self.of.is_some() || !self.regions.is_empty()
    }

    /// True if there are places.
    pub fn is_placed(&self) -> bool {
        self.of.is_some()
    }

    /// A number that changes whenever a place changes, never the same for another context.
    pub fn places_version(&self) -> u64 {
        self.places_version
    }

    /// Segments of the regions, and a number that changes with them.
    pub fn segments(&self) -> (&[RamSegment], u64) {
        (&self.segments, self.version)
    }

    /// Frame of a page of a layer.
    pub fn frame(&self, layer: usize, page: usize) -> Option<u32> {
        self.frames.get(layer).filter(|_| self.of.is_some())?.get(page).copied().flatten()
    }

    /// Gives up the slabs of all places, but not the regions. Submitted kernels must have ended.
    pub fn release_slabs(&mut self) {
        self.release_layer();
        self.frames.clear();
        self.runs.layers.clear();
    }

    /// Gives up the slabs of the layer that was paged in last.
    pub fn release_layer(&mut self) {
        (self.of, self.slabs) = (None, Vec::new());
        self.paged_in.clear();
        self.places_version += 1;
    }

    /// Frame of a page of the layer that was paged in last.
    pub fn paged_frame(&self, page: u32) -> Option<u32> {
        self.paged_in.get(&page).copied()
    }

    /// Takes the slabs of these pages of one layer, of `page_bytes` each. Frames begin with `first_frame`; earlier regions keep
    /// theirs.
    ///
    /// # Errors
    /// A region that the device cannot read, as a clause.
    pub fn place_layer(
        &mut self,
        gpu: &Gpu,
        pages: Vec<(u32, PageBytes)>,
        (page_bytes, first_frame): (usize, usize),
    ) -> Result<(), String> {
        for (page, bytes) in pages {
            let source = bytes.source();
            if !source.offset.is_multiple_of(page_bytes) {
                return Err(format!("a page begins at byte {}", source.offset));
            }
            let found = self.regions.iter().find(|(region, _)| region.region().id() == source.region.id());
            let first = match found {
                Some((_, first)) => *first,
                None => self.append_region(gpu, source.region, None, (page_bytes, first_frame))?,
            };
            self.paged_in.insert(page, (first + source.offset / page_bytes) as u32);
            self.slabs.push(bytes);
        }
        Ok(())
    }

    /// Takes the slabs of these pages, by layer, of `page_bytes` each; `of` is their version. Frames begin with `first_frame`.
    ///
    /// # Errors
    /// A region that the device cannot read, as a clause. Then there are no places.
    pub fn replace(
        &mut self,
        gpu: &Gpu,
        pages: Vec<Vec<Option<PageBytes>>>,
        (page_bytes, first_frame): (usize, usize),
        of: (u64, usize),
    ) -> Result<(), String> {
        (self.of, self.slabs) = (None, Vec::new());
        self.places_version += 1;
        let mut regions: Vec<Arc<dyn HostRegion>> = Vec::new();
        let mut place = |page: &PageBytes| -> Result<Place, String> {
            let source = page.source();
            if !source.offset.is_multiple_of(page_bytes) {
                return Err(format!("a page begins at byte {}", source.offset));
            }
            let found = regions.iter().position(|region| region.id() == source.region.id());
            let index = found.unwrap_or(regions.len());
            if found.is_none() {
                regions.push(source.region);
            }
            Ok((index, source.offset / page_bytes))
        };
        let mut places: Vec<Vec<Option<Place>>> = Vec::new();
        for of_layer in &pages {
            places.push(of_layer.iter().map(|page| page.as_ref().map(&mut place).transpose()).collect::<Result<_, _>>()?);
        }
        self.set_regions(gpu, regions, (page_bytes, first_frame))?;
        let first = |index: usize| self.regions.get(index).map_or(0, |(_, first_frame)| *first_frame);
        let frame = |place: Option<Place>| place.map(|(index, frame)| (first(index) + frame) as u32);
        self.frames = places.into_iter().map(|places| places.into_iter().map(frame).collect()).collect();
        self.slabs = pages.into_iter().flatten().flatten().collect();
        self.of = Some(of);
        Ok(())
    }

    /// True if there are runs for the frames of this version.
    pub fn has_runs(&self, of_frames: u64) -> bool {
        self.of.is_some() && self.runs.of == Some((of_frames, self.places_version))
    }

    /// Makes a run of the pages of each layer in each region, of those for which `is_read(layer, page)` is true.
    ///
    /// # Errors
    /// Out of VRAM, a lost GPU.
    pub fn make_runs(
        &mut self,
        gpu: &Gpu,
        spec: &KvSpec,
        of_frames: u64,
        is_read: impl Fn(usize, u32) -> bool,
    ) -> Result<(), GpuError> {
        let (mut tables, mut places) = (Vec::new(), Vec::new());
        for (layer, frames) in self.frames.iter().enumerate() {
            let read = frames.iter().enumerate().filter(|(page, _)| is_read(layer, *page as u32));
            let read: Vec<usize> = read.filter_map(|(_, frame)| Some((*frame)? as usize)).collect();
            for (segment, RamSegment { first_frame, n_frames, .. }) in self.segments.iter().enumerate() {
                let here = read.iter().filter_map(|frame| frame.checked_sub(*first_frame).filter(|frame| frame < n_frames));
                let here: Vec<usize> = here.collect();
                if !here.is_empty() {
                    tables.resize(tables.len().next_multiple_of(BINDING_ALIGN_BYTES as usize / size_of::<u32>()), 0);
                    places.push((layer, segment, here.len(), tables.len()));
                    tables.extend(spec.table(&here, here.len() * BLOCKS_PER_PAGE));
                }
            }
        }
        let buffer = gpu.buffer("RAM block tables", (4 * tables.len().max(1)) as u64)?;
        gpu.upload(&buffer.all(), bytemuck::cast_slice(&tables))?;
        let mut layers: Vec<Vec<RamRun>> = self.frames.iter().map(|_| Vec::new()).collect();
        for (layer, segment, n_pages, at) in places {
            let table = buffer.slice(4 * at as u64, spec.table_bytes(n_pages));
            layers[layer].push(RamRun { segment, table, n_pages });
        }
        self.runs = RamRuns { layers, of: Some((of_frames, self.places_version)), version: self.runs.version + 1 };
        Ok(())
    }

    /// Runs of every layer, and a number that changes with them.
    pub fn runs(&self) -> (&[Vec<RamRun>], u64) {
        (&self.runs.layers, self.runs.version)
    }

    fn set_regions(&mut self, gpu: &Gpu, regions: Vec<Arc<dyn HostRegion>>, sizes: (usize, usize)) -> Result<(), String> {
        if self.regions.iter().map(|(region, _)| region.region().id()).eq(regions.iter().map(|region| region.id())) {
            return Ok(());
        }
        self.version += 1;
        self.segments.clear();
        let mut known = std::mem::take(&mut self.regions);
        for region in regions {
            let found = known.iter().position(|(known, _)| known.region().id() == region.id());
            let readable = found.map(|i| known.swap_remove(i).0);
            self.append_region(gpu, region, readable, sizes)?;
        }
        Ok(())
    }

    /// Appends the segments of a region, which may be `readable` already. Returns its first frame: the one after all others, or
    /// `first_frame`.
    fn append_region(
        &mut self,
        gpu: &Gpu,
        region: Arc<dyn HostRegion>,
        readable: Option<ReadableRegion>,
        (page_bytes, first_frame): (usize, usize),
    ) -> Result<usize, String> {
        let readable = readable.map_or_else(|| gpu.readable_region(region), Ok)?;
        let first_frame = self.segments.last().map_or(first_frame, |last| last.first_frame + last.n_frames);
        let max_frames = (gpu.max_binding_bytes() as usize / page_bytes).max(1);
        let n_frames = readable.region().span().1 / page_bytes;
        let buffer = readable.buffer();
        for begin in (0..n_frames).step_by(max_frames) {
            let n_here = max_frames.min(n_frames - begin);
            let pages = buffer.slice((begin * page_bytes) as u64, (n_here * page_bytes) as u64);
            self.segments.push(RamSegment { pages, first_frame: first_frame + begin, n_frames: n_here });
        }
        self.regions.push((readable, first_frame));
        self.version += 1;
        Ok(first_frame)
    }
}
