//! Survey of `strata doctor`: the GPUs, memory and disk of this machine.
//!
//! ```text
//! gpu ─► adapters ─► opened GPU ─┬─► StorageReport ─┬─► Survey ─► doctor
//!                                └─► DeviceReport ──┘
//! ```

use std::path::Path;

use serde::Serialize;

use super::device::{self, AdapterLine, DeviceReport};
use super::storage::StorageReport;
use crate::cli::error::CliError;

/// Complete survey of `strata doctor`.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// all adapters, best first
    pub adapters: Vec<AdapterLine>,
    /// the GPU that would be used
    pub device: DeviceReport,
    /// memory and disk
    #[serde(flatten)]
    pub storage: StorageReport,
}

/// Lists the adapters, opens the one that matches `gpu` (or the best), and measures it and the disk of the library.
///
/// # Errors
/// [`CliError::Failed`] if there is no GPU, [`CliError::Input`] if none matches `gpu`.
pub fn survey(gpu: Option<&str>, kv_dir: Option<&Path>) -> Result<Survey, CliError> {
    let adapters = AdapterLine::find_all();
    let (gpu, tuning) = device::open_tuned(gpu)?;
    // Queried before the measurements allocate buffers on the GPU.
    let storage = StorageReport::measure(&gpu, kv_dir);
    let device = DeviceReport::measure(&gpu, &tuning)?;
    Ok(Survey { adapters, device, storage })
}
