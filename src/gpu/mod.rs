//! GPU layer: creates all wgpu devices, pipelines, buffers and staging; `kernels` has one host file per op.
//!
//! ```text
//! KernelKey ─► shader_source ─► Kernel (pipeline)      Recorder: [dispatch, copy, ...] ─► one submit ─► wait / readback
//! bytes ─► Buffer (error-scoped allocation, counted)        ▲ bind groups, params (immediates or a uniform ring)
//! ```
//! 1. No module outside this one names a `wgpu` type, except through the re-exports here.
//! 2. Every allocation is inside an error scope and counted. A refused one is an error with its size, not a panic.
//! 3. A binding never exceeds `max_storage_buffer_binding_size` of the device.
//! 4. After a lost device every call returns [`GpuError::Lost`]; the owner drops it and opens another.

mod buffer;
mod cooperative;
mod device;
mod device_pool;
mod error;
mod host_memory;
mod kernel;
pub mod kernels;
mod mark;
mod memory;
mod memory_info;
pub mod microbenchmark;
mod parallel_copy;
mod pass_timestamps;
mod pipeline;
mod recorder;
mod selection_costs;
pub mod shader_source;
mod staging;
#[cfg(test)]
pub(crate) mod testing;
mod timestamps;
mod trusted;
pub mod tuner;
mod tuning;
mod upload_ring;

pub use buffer::{Buffer, Slice};
pub use cooperative::CooperativeMatrices;
pub use device::{Adapters, FeatureOverrides, Gpu, GpuOptions};
pub use device_pool::DevicePool;
pub use error::GpuError;
pub use host_memory::{HostRegion, HostSource, ReadableRegion, TransferQueue};
pub use kernel::{Binding, Kernel};
pub use memory_info::DeviceMemory;
pub use parallel_copy::is_divided;
pub use recorder::{Recorder, Submitted};
pub use selection_costs::{LinearCost, SelectionCosts};
pub use shader_source::KernelKey;
pub use staging::StagingBuffer;
pub use timestamps::{GpuSpan, MAX_IN_FLIGHT, MAX_PASSES, TimestampRing};
pub use tuning::{MatmulKernel, MatvecShape, PrefillKernel, Tuning, TuningPart};
pub use upload_ring::{UploadCopy, UploadRing};
