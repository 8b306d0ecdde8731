//! Memory fit: bytes that a model needs, from its header alone. Loads and allocates nothing.
//!
//! ```text
//! ModelFile (header) + DeviceFacts ─► MemoryNeeds ── LoadOptions ─► MemoryFit: weights, KV of the context, budgets
//! ```
//! Invariant: [`MemoryNeeds::fit`] returns what loading allocates, because both call the same functions.
//!
//! Units: bytes, tokens. Limits: free memory is a snapshot, of when the device was opened and held no model.

use std::path::Path;

use crate::base::{ModelDims, Tiers};
use crate::engine::api::{DeviceFacts, LoadOptions};
use crate::engine::context::saved_documents;
use crate::engine::error::EngineError;
use crate::engine::runner::activations::{activation_bytes, max_chunk, tile_keys};
use crate::engine::runner::gpu_model::{check_shape, kv_spec};
use crate::gpu::Gpu;
use crate::kv::VramPlan;
use crate::kv::budget::{self, Machine};
use crate::model::ModelFile;
use crate::model::arch::plan::ModelPlan;
use crate::model::weights::layout;

/// Memory that a model needs, independent of the context.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryNeeds {
    /// weights on the device, bytes
    pub weights: u64,
    /// activation buffers, bytes
    pub activations: u64,
    dims: ModelDims,
    sliding_window: Option<usize>,
    max_chunk: usize,
}

/// Memory that a model needs at one context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFit {
    /// tokens
    pub context: usize,
    /// minimum: weights, activations and the tail of the KV cache, bytes
    pub least: u64,
    /// KV cache of the whole context, bytes
    pub kv_bytes: u64,
    /// budgets of the KV tiers
    pub budgets: Tiers<u64>,
    /// free memory of the device, or of the machine if they share it; None if unknown
    pub free: Option<u64>,
}

impl DeviceFacts {
    /// Facts of a device without a model. `kv_dir` is the folder for saved documents.
    pub(super) fn look(gpu: &Gpu, kv_dir: Option<&Path>) -> DeviceFacts {
        let library = saved_documents::library_root(kv_dir).ok();
        DeviceFacts {
            name: gpu.info().name.clone(),
            is_software: gpu.is_software(),
            software_kernels: gpu.uses_software_kernels(),
            max_binding_bytes: gpu.max_binding_bytes(),
            machine: Machine::look(gpu, library.as_deref()),
        }
    }
}

impl MemoryNeeds {
    /// Memory needs of a model whose header was read.
    ///
    /// # Errors
    /// A shape that the kernels cannot run.
    pub fn of(file: &ModelFile, device: &DeviceFacts) -> Result<MemoryNeeds, EngineError> {
        let plan = file.plan();
        check_shape(plan)?;
        let chunk = max_chunk(device.is_software);
        let sizes = activation_bytes(plan, chunk, tile_keys(&plan.dims, chunk), device.software_kernels);
        Ok(MemoryNeeds {
            weights: layout::lay_out(file, device.max_binding_bytes)?.total_bytes(),
            activations: sizes.iter().map(|(_, b)| b.next_multiple_of(16).max(16)).sum(),
            dims: plan.dims.clone(),
            sliding_window: plan.sliding_window,
            max_chunk: chunk,
        })
    }

    /// Longest context that the model was trained for and attends to, tokens.
    pub fn window(&self) -> usize {
        window(&self.dims, self.sliding_window)
    }

    /// Memory that loading with these options takes.
    pub fn fit(&self, options: &LoadOptions, device: &DeviceFacts) -> MemoryFit {
        let machine = &device.machine;
        let context = context_in_force(&self.dims, self.sliding_window, options);
        let budgets = budgets(machine, self.weights, options);
        let spec = kv_spec(&self.dims, options.kv_dtype);
        let planned = VramPlan::new(&spec, context, self.max_chunk, Some(budgets.vram), options.policy.is_some());
        let kv_first = planned.map_or_else(|least| least, |plan| plan.tail_bytes(&spec));
        MemoryFit {
            context,
            least: self.weights + self.activations + kv_first,
            kv_bytes: spec.token_bytes().saturating_mul(context as u64),
            budgets,
            free: device.free_bytes(),
        }
    }
}

impl MemoryFit {
    /// Bytes by which the minimum exceeds the free memory. None if it fits, or if the free memory is unknown.
    pub fn too_large_by(&self) -> Option<u64> {
        self.free.and_then(|free| self.least.checked_sub(free)).filter(|n| *n > 0)
    }
}

/// Budgets of the tiers for a model of this size: the given ones, otherwise defaults of the machine.
pub(super) fn budgets(machine: &Machine, weight_bytes: u64, options: &LoadOptions) -> Tiers<u64> {
    let defaults = budget::defaults(machine, weight_bytes).caps;
    let given = options.budgets;
    Tiers {
        vram: given.vram.unwrap_or(defaults.vram).0,
        ram: given.ram.unwrap_or(defaults.ram).0,
        disk: given.disk.unwrap_or(defaults.disk).0,
    }
}

/// Context that a model is loaded with, tokens.
pub(super) fn context_of(plan: &ModelPlan, options: &LoadOptions) -> usize {
    context_in_force(&plan.dims, plan.sliding_window, options)
}

fn context_in_force(dims: &ModelDims, sliding_window: Option<usize>, options: &LoadOptions) -> usize {
    let window = window(dims, sliding_window);
    // A different RoPE base extends the trained window.
    let most = if options.rope_base.is_some() { sliding_window.unwrap_or(usize::MAX) } else { window };
    options.context.unwrap_or(window).clamp(1, most)
}

fn window(dims: &ModelDims, sliding_window: Option<usize>) -> usize {
    sliding_window.unwrap_or(usize::MAX).min(dims.context_len)
}
