//! Device step: attention of a layer over the tokens that the GPU selects, and what it selected if that is measured.
//!
//! Owner: the engine thread. Shapes: R rows, H query heads and G KV heads of each, P complete pages.
//!
//! Source: LeoAM §4.2.

use std::collections::{BTreeMap, HashMap};

use crate::base::limits::{KV_BLOCK_TOKENS, KV_PAGE_TOKENS};
use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::pass::{Pass, Row, Splits};
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::Selector;
use crate::engine::selection::device_selection::DeviceSelection;
use crate::engine::selection::paged_step::{NEW_REGIONS, pin_used_pages};
use crate::engine::selection::sequence_policy::{RowSelection, SequencePolicy};
use crate::engine::selection::step::Device;
use crate::gpu::kernels::attention_decode::{SegmentEntries, SegmentKeys};
use crate::gpu::kernels::linear::ActivationForm;
use crate::gpu::kernels::selection::{SegmentFrames, SelectionPlace, SelectionSizes};
use crate::gpu::{Binding, Gpu};
use crate::kv::policy::{SelectedBlock, Selection, unique};
use crate::kv::{BLOCKS_PER_PAGE, VramCache};
use crate::telemetry::KernelFamily;

impl Executor {
    /// Decides whether the GPU selects for these rows, in every layer of a step after `n_context` tokens, and prepares that.
    ///
    /// # Errors
    /// An error of the offload tiers, out of VRAM, a lost device.
    pub(in crate::engine) fn begin_device_selection(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        n_context: usize,
        rows: &[Row],
    ) -> Result<(), EngineError> {
        let (n_pages, n_layer) = (n_context / KV_PAGE_TOKENS, self.model.dims.n_layer);
        let policy = rows.first().and_then(|row| row.policy.as_deref());
        let sizes: Option<Vec<SelectionSizes>> = (0..n_layer).map(|layer| policy?.device_sizes(layer, n_pages)).collect();
        // Without overlap, pages in RAM are transferred one after the other.
        let may_read = |kv: &VramCache| !self.synchronous || (0..n_layer).all(|l| kv.is_all_resident(l, n_pages as u32));
        let is_placed = sizes.is_some() && n_pages > 0 && may_read(&self.kv) && self.kv.prepare_places(gpu, n_pages)?;
        let is_paged = !is_placed && sizes.is_some() && self.begin_paging(gpu, n_pages)?;
        if !is_paged && !self.kv.reads_places() {
            self.release_places(gpu)?;
        }
        if let Some(sizes) = sizes.as_ref().filter(|_| is_placed || is_paged) {
            self.promote_pages(gpu, pacer, n_pages, is_paged)?;
            let n_table = sizes.iter().map(SelectionSizes::n_table).max().unwrap_or(0);
            self.reserve_lists(gpu, rows, n_context, n_table, if is_paged { NEW_REGIONS } else { 0 })?;
        }
        let Some(device) = self.selector.as_mut().map(|selector| &mut selector.device) else { return Ok(()) };
        let capacity = device.buffers.as_ref().map(|buffers| buffers.capacity);
        let fits = |sizes: &SelectionSizes| capacity.is_some_and(|capacity| capacity.holds(rows.len(), sizes));
        let fits = (is_placed || is_paged) && sizes.iter().flatten().all(fits);
        device.is_active = fits && device.begin_step(gpu, &self.kv, (rows.len(), n_pages), is_paged);
        Ok(())
    }

    /// Returns the staging buffers of promoted pages, after the step that copied them was submitted.
    pub(in crate::engine) fn return_promoted(&mut self) {
        if let Some(selector) = &mut self.selector {
            selector.device.promotion.return_submitted(&self.kv);
        }
    }

    /// Gives up all places in RAM: new pages may need the slabs.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn release_places(&mut self, gpu: &Gpu) -> Result<(), EngineError> {
        self.kv.release_places(gpu)?;
        self.in_place.unbind();
        self.selector.iter_mut().for_each(|selector| selector.device.unbind_ram());
        Ok(())
    }

    /// Moves often-selected pages to frames, if some pages are read in RAM.
    fn promote_pages(&mut self, gpu: &Gpu, pacer: &mut SubmitPacer, n_pages: usize, is_paged: bool) -> Result<(), EngineError> {
        let Executor { selector: Some(selector), kv, .. } = self else { return Ok(()) };
        let DeviceSelection { buffers: Some(buffers), promotion, .. } = &mut selector.device else { return Ok(()) };
        if kv.ram_segments().0.is_empty() {
            return Ok(());
        }
        let frequency = (&mut selector.frequency, selector.clock);
        let is_counted = promotion.begin_step(gpu, (&mut pacer.recorder, kv), buffers, frequency, n_pages)?;
        if is_counted && is_paged {
            pin_used_pages(kv, &selector.frequency, n_pages, selector.clock);
        }
        Ok(())
    }

    /// Reserves splits for the lists of all segments, those in RAM and `n_new` more included, and creates the missing bind groups.
    fn reserve_lists(
        &mut self,
        gpu: &Gpu,
        rows: &[Row],
        n_context: usize,
        n_table: usize,
        n_new: usize,
    ) -> Result<(), EngineError> {
        let n_in_ram = self.kv.ram_segments().0.len() + n_new;
        if let Some(selector) = self.selector.as_ref().filter(|_| n_in_ram > 0) {
            let n_segments = self.kv.shapes().len() + n_in_ram;
            let splits = Splits::new(&selector.decode, rows, n_context, &vec![n_table; n_segments]);
            self.reserve_splits(gpu, rows.len() * splits.n_splits)?;
            self.bind_missing(gpu)?;
        }
        Ok(())
    }

    /// Attention of every row over the tokens that the GPU selects of the complete pages, and over its tail. None if the GPU
    /// does not select in this step.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn attend_on_device(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &mut [Row],
    ) -> Result<Option<ActivationForm>, EngineError> {
        if !s.device.is_active {
            return Ok(None);
        }
        let n_pages = n_context / KV_PAGE_TOKENS;
        if rows.iter().filter_map(|row| row.policy.as_deref()).any(|policy| policy.reads_all(layer)) {
            let n_tokens = n_pages * KV_PAGE_TOKENS * self.model.dims.n_kv_head;
            for policy in rows.iter_mut().filter_map(|row| row.policy.as_deref_mut()) {
                let measures_mass = policy.measures_mass();
                policy.stats.record_all(layer, n_tokens, measures_mass);
            }
            return self.attend(device.gpu, device.pacer, layer, n_context, &Pass::Rows(rows)).map(Some);
        }
        let sizes = rows.first().and_then(|row| row.policy.as_deref()?.device_sizes(layer, n_pages));
        let Some(sizes) = sizes else { return Ok(None) };
        if !self.list_candidates(s, device, layer, rows.len(), sizes)? {
            return Ok(None);
        }
        let is_paged = s.device.is_paged;
        let selection = &mut s.device;
        let (Some(buffers), Some(bindings)) = (&selection.buffers, &selection.bindings) else { return Ok(None) };
        let kernels = &selection.kernels;
        let pacer = &mut *device.pacer;
        let (ram_segments, _) = self.kv.ram_segments();
        let in_pool = (0..self.kv.shapes().len()).filter(|i| self.kv.is_used(layer, *i)).map(|i| {
            let shape = self.kv.shapes()[i];
            (
                SegmentFrames { first: shape.first_frame, n: shape.n_frames },
                &bindings.scores[i][layer],
                &bindings.decode[i][layer],
            )
        });
        let in_ram = ram_segments.iter().zip(bindings.in_ram.scores.iter().zip(&bindings.in_ram.decode));
        let in_ram = in_ram.map(|(segment, (scores, decode))| {
            (SegmentFrames { first: segment.first_frame, n: segment.n_frames }, scores, decode)
        });
        let segments: Vec<(SegmentFrames, &Binding, &Binding)> = in_pool.chain(in_ram).collect();
        let n_keys = sizes.n_table();
        let mut splits = Splits::new(&s.decode, rows, n_context, &vec![n_keys; segments.len()]).tails_first();
        if self.splits.as_ref().is_none_or(|buffers| buffers.capacity < rows.len() * splits.n_splits) {
            return Ok(None);
        }
        pacer.mark(KernelFamily::Attention, layer as u32);
        self.attend_tails(pacer, layer, n_context, rows, &mut splits);
        pacer.mark(KernelFamily::Evaluation, layer as u32);
        let (n_rows, n_splits, n_tail) = (rows.len(), splits.n_splits, splits.n_tail());
        let place = SelectionPlace { layer, n_rows, n_splits, n_tail, first_in_ram: self.kv.first_frame_in_ram(is_paged) };
        for (frames, scores, _) in &segments {
            kernels.record_scores(&mut pacer.recorder, scores, buffers, place, sizes, *frames);
        }
        kernels.record_list(&mut pacer.recorder, &bindings.selection, buffers, place, sizes);
        pacer.mark(KernelFamily::Attention, layer as u32);
        let frame_entries = (BLOCKS_PER_PAGE * self.model.dims.n_kv_head * KV_BLOCK_TOKENS) as u32;
        for (frames, _, decode) in &segments {
            let entries = SegmentEntries { first: frames.first as u32 * frame_entries, n: frames.n as u32 * frame_entries };
            let (keys, all) = splits.next(n_keys, n_keys);
            s.decode.record_rows(&mut pacer.recorder, decode, SegmentKeys { entries, ..keys }, all);
        }
        let form = self.merge_rows(pacer, layer, &splits);
        selection.n_selections += rows.len() as u64;
        let n_listed = self.model.dims.n_kv_head * n_keys;
        for policy in rows.iter_mut().filter_map(|row| row.policy.as_deref_mut()) {
            policy.stats.record_device(n_listed, n_pages * KV_PAGE_TOKENS * self.model.dims.n_kv_head);
        }
        self.kv.count_selected(rows.len() * n_keys.div_ceil(KV_PAGE_TOKENS), rows.len() * n_pages);
        if rows.iter().filter_map(|row| row.policy.as_deref()).any(SequencePolicy::measures_mass) {
            let selected = self.read_selection(s, device, layer, n_context, rows)?;
            self.measure_mass(s, device, layer, n_context, rows, &selected, vec![Vec::new(); rows.len()])?;
        }
        Ok(Some(form))
    }

    /// Reads back what the GPU selected in a layer, after [`Executor::attend_on_device`]: a selection for each row. Waits.
    ///
    /// # Errors
    /// A lost device.
    fn read_selection(
        &self,
        s: &Selector,
        device: &mut Device,
        layer: usize,
        n_context: usize,
        rows: &[Row],
    ) -> Result<Vec<RowSelection>, EngineError> {
        let (n_pages, n_kv_head) = (n_context / KV_PAGE_TOKENS, self.model.dims.n_kv_head);
        let policy: Option<&SequencePolicy> = rows.first().and_then(|row| row.policy.as_deref());
        let sizes = policy.and_then(|policy| policy.device_sizes(layer, n_pages));
        let (Some(buffers), Some(frames), Some(sizes)) = (&s.device.buffers, &s.device.frames.layers, sizes) else {
            return Ok(Vec::new());
        };
        let n_bytes = (4 * rows.len() * n_kv_head * sizes.n_table()) as u64;
        let readback = device.gpu.readback_buffer("selected tokens", n_bytes)?;
        let table = &buffers.table;
        device.pacer.recorder.copy(&table.buffer.slice(table.offset, n_bytes), &readback.slice(0, n_bytes));
        let submitted = device.pacer.submit(device.gpu)?;
        let entries: Vec<u32> = device.pacer.read_after(device.gpu, &submitted, &readback, bytemuck::pod_collect_to_vec)?;
        let mut page_of = HashMap::new();
        for (page, frame) in frames[layer].iter().enumerate() {
            page_of.insert(*frame as usize, page);
        }
        let blocks_of = |list: &[u32]| {
            let mut masks = BTreeMap::new();
            for entry in list {
                let (slot, token) = (*entry as usize / KV_BLOCK_TOKENS, *entry as usize % KV_BLOCK_TOKENS);
                let in_page = slot / n_kv_head;
                let Some(page) = page_of.get(&(in_page / BLOCKS_PER_PAGE)) else { continue };
                let block = (page * BLOCKS_PER_PAGE + in_page % BLOCKS_PER_PAGE) as u32;
                *masks.entry(block).or_insert(0u16) |= 1 << token;
            }
            masks.into_iter().map(|(block, tokens)| SelectedBlock { block, tokens }).collect::<Vec<_>>()
        };
        let of_row = |row: &[u32]| {
            let blocks: Vec<Vec<SelectedBlock>> = row.chunks_exact(sizes.n_table().max(1)).map(blocks_of).collect();
            let pages = unique(blocks.iter().flatten().map(SelectedBlock::page).collect());
            let selection = Selection { blocks, pages, n_evaluations: 0 };
            RowSelection { selection, next: None }
        };
        Ok(entries.chunks_exact((n_kv_head * sizes.n_table()).max(1)).map(of_row).collect())
    }
}
