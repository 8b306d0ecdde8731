//! Storage survey of `strata doctor`: memory and disk, free space, measured speed, and the resulting budgets.
//!
//! ```text
//! budget::Machine ─► defaults ─┐
//! store::disk_benchmark ─► disk, ring ──┴─► StorageReport ─► doctor
//! ```
//! Units: bytes, bytes per second; null if unknown.

use std::path::Path;

use serde::Serialize;

use super::device::rate;
use crate::base::{Bytes, Tiers};
use crate::engine::saved_documents::library_root;
use crate::gpu::{DeviceMemory, Gpu};
use crate::kv::budget::{self, Budgets, Machine};
use crate::kv::store::disk_benchmark;

/// Memory, disk and budgets.
#[derive(Debug, Default, Serialize)]
pub struct StorageReport {
    memory: MemoryReport,
    disk: DiskReport,
    /// default KV budgets, before the weights of a model are subtracted
    budgets: Tiers<u64>,
    budget_reasons: Tiers<String>,
}

#[derive(Debug, Default, Serialize)]
struct MemoryReport {
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    device: Option<DeviceMemory>,
}

#[derive(Debug, Default, Serialize)]
struct DiskReport {
    /// folder of saved documents
    library: Option<String>,
    library_bytes: u64,
    free_bytes: Option<u64>,
    read_bytes_per_s: Option<f64>,
    /// true if reads bypass the page cache
    direct: Option<bool>,
    /// why the speed is unknown
    problem: Option<String>,
    /// `io_uring` or `threads`
    io_backend: String,
    io_reason: String,
}

impl StorageReport {
    /// Queries and measures, for the library in `kv_dir` or the user's default one.
    pub fn measure(gpu: &Gpu, kv_dir: Option<&Path>) -> StorageReport {
        let root = library_root(kv_dir);
        let machine = Machine::look(gpu, root.as_deref().ok());
        let Budgets { caps, reasons: [vram, ram, disk] } = budget::defaults(&machine, 0);
        let memory = budget::memory();
        StorageReport {
            memory: MemoryReport {
                total_bytes: memory.map(|m| m.total.0),
                free_bytes: memory.map(|m| m.available.0),
                device: machine.device,
            },
            disk: DiskReport::measure(root.as_deref().map_err(ToString::to_string), &machine),
            budgets: Tiers { vram: caps.vram.0, ram: caps.ram.0, disk: caps.disk.0 },
            budget_reasons: Tiers { vram, ram, disk },
        }
    }

    /// Titled sections of lines for the text report.
    pub fn sections(&self) -> [(&'static str, Vec<(&'static str, String)>); 2] {
        let bytes = |n: Option<u64>| n.map_or_else(|| "N/A".to_owned(), |n| Bytes(n).to_string());
        let disk = &self.disk;
        let speed = match (disk.read_bytes_per_s, disk.direct) {
            (Some(speed), Some(false)) => format!("{} (through the page cache)", rate(speed)),
            (Some(speed), _) => rate(speed),
            (None, _) => format!("N/A: {}", disk.problem.as_deref().unwrap_or("not measured")),
        };
        let device = self.memory.device;
        let memory = vec![
            ("memory", bytes(self.memory.total_bytes)),
            ("free memory", bytes(self.memory.free_bytes)),
            ("device memory", bytes(device.map(|m| m.total))),
            ("free device memory", bytes(device.and_then(|m| m.free))),
            ("saved documents", disk.library.clone().unwrap_or_else(|| "N/A".to_owned())),
            ("their size", Bytes(disk.library_bytes).to_string()),
            ("free on that disk", bytes(disk.free_bytes)),
            ("disk read", speed),
            ("disk access", format!("{}: {}", disk.io_backend, disk.io_reason)),
        ];
        let cap = |n: u64, why: &str| format!("{:<9} {why}", Bytes(n).to_string());
        let budgets = vec![
            ("VRAM", cap(self.budgets.vram, &self.budget_reasons.vram)),
            ("RAM", cap(self.budgets.ram, &self.budget_reasons.ram)),
            ("disk", cap(self.budgets.disk, &self.budget_reasons.disk)),
        ];
        [("Memory and disk", memory), ("Budgets for the KV cache, before the weights of a model", budgets)]
    }
}

impl DiskReport {
    fn measure(root: Result<&Path, String>, machine: &Machine) -> DiskReport {
        // The library may not exist yet; its nearest existing parent has the same file system.
        let nearest = |root: &Path| root.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned);
        let measured = root.clone().and_then(|root| match nearest(root) {
            Some(folder) => disk_benchmark::measure(&folder).map_err(|e| e.to_string()),
            None => Err(format!("{} could not be created", root.display())),
        });
        let (io_backend, io_reason) = match disk_benchmark::backend() {
            Ok(info) => (info.kind.to_string(), info.reason),
            Err(error) => ("none".to_owned(), error.to_string()),
        };
        DiskReport {
            library: root.ok().map(|root| root.display().to_string()),
            library_bytes: machine.library.0,
            free_bytes: machine.free_disk.map(|b| b.0),
            read_bytes_per_s: measured.as_ref().ok().map(|m| m.read_bytes_per_s),
            direct: measured.as_ref().ok().map(|m| m.direct),
            problem: measured.err(),
            io_backend,
            io_reason,
        }
    }
}
