//! Default KV budgets of the tiers, from the free memory and disk space of the machine.
//!
//! ```text
//! GPU memory │ MemAvailable │ free disk, library ─► Machine ─► defaults ─► caps of the tiers, and why
//! ```
//! 1. Memory is counted once: a GPU without its own memory shares the RAM of the machine with the RAM tier.
//! 2. Stores in the library count as free space, because a new document may replace an old one.
//! 3. No budget is too small to transfer pages.
//!
//! Units: bytes. Limits: free memory is a snapshot; an allocation may still fail.

use std::path::Path;

use crate::base::{Bytes, Tiers};
use crate::gpu::{DeviceMemory, Gpu};
use crate::kv::store::{StoreRoot, free_bytes};

/// Reserve for the driver, the window and other programs, on a GPU with its own memory.
const RESERVE_BYTES: u64 = 256 << 20;
/// Usable part of the remaining GPU memory, percent.
const OWN_MEMORY_PERCENT: u64 = 90;
/// Part of the RAM for the RAM tier, if the GPU has its own memory, percent.
const RAM_PERCENT: u64 = 50;
/// Part of the RAM for each of VRAM and RAM tier, if they share it, percent.
const SHARED_PERCENT: u64 = 25;
/// Part of the free disk space, percent.
const DISK_PERCENT: u64 = 50;
/// Assumed free bytes if the system does not report them.
const UNKNOWN_BYTES: u64 = 1 << 30;
/// Minimum budget of a memory tier.
const MIN_BYTES: u64 = 64 << 20;

/// Free resources of the machine, as far as reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// the GPU has its own memory
    pub has_own_memory: bool,
    /// memory of the GPU
    pub device: Option<DeviceMemory>,
    /// free RAM
    pub free_memory: Option<Bytes>,
    /// free space on the file system of the library
    pub free_disk: Option<Bytes>,
    /// bytes of all stores in the library
    pub library: Bytes,
}

/// RAM of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// total
    pub total: Bytes,
    /// free for programs, including reclaimable caches
    pub available: Bytes,
}

/// Budgets of the tiers, with the reason for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgets {
    /// maximum KV bytes
    pub caps: Tiers<Bytes>,
    /// for VRAM, RAM, disk
    pub reasons: [String; 3],
}

impl Machine {
    /// Measures this machine. Creates nothing; a missing library is empty.
    pub fn look(gpu: &Gpu, library: Option<&Path>) -> Machine {
        Machine {
            has_own_memory: gpu.has_own_memory(),
            device: gpu.memory(),
            free_memory: free_memory(),
            free_disk: library.and_then(free_disk),
            library: library.and_then(|root| StoreRoot::at(root).total().ok()).unwrap_or_default(),
        }
    }
}

/// RAM available to programs. None if the system does not report it.
pub fn free_memory() -> Option<Bytes> {
    Some(memory()?.available)
}

/// RAM of the machine. None if the system does not report it.
pub fn memory() -> Option<Memory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Free disk bytes at `path`, which need not exist yet.
pub fn free_disk(path: &Path) -> Option<Bytes> {
    path.ancestors().find(|folder| folder.is_dir()).and_then(free_bytes)
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Bytes(kib.saturating_mul(1024)))
    };
    Some(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// Default budgets for a model with `weight_bytes` still to be uploaded.
pub fn defaults(machine: &Machine, weight_bytes: u64) -> Budgets {
    let own = machine.device.filter(|_| machine.has_own_memory);
    let (vram, vram_reason) = match own {
        Some(memory) => gpu_budget(memory, weight_bytes),
        None => ram_budget(machine, SHARED_PERCENT),
    };
    let ram_percent = if own.is_some() { RAM_PERCENT } else { SHARED_PERCENT };
    let (ram, ram_reason) = ram_budget(machine, ram_percent);
    let (disk, disk_reason) = match machine.free_disk {
        Some(free) => {
            let room = percent(free.0, DISK_PERCENT);
            let library = machine.library;
            let library_note = if library.0 > 0 { format!(", plus {library} of saved documents") } else { String::new() };
            (room.saturating_add(library.0), format!("{DISK_PERCENT} % of the {free} of free disk space{library_note}"))
        }
        None => (UNKNOWN_BYTES, "the system does not report free disk space".to_owned()),
    };
    let caps = Tiers { vram: Bytes(vram.max(MIN_BYTES)), ram: Bytes(ram.max(MIN_BYTES)), disk: Bytes(disk) };
    Budgets { caps, reasons: [vram_reason, ram_reason, disk_reason] }
}

/// Part of the GPU memory.
fn gpu_budget(memory: DeviceMemory, weight_bytes: u64) -> (u64, String) {
    let remaining = memory.free.unwrap_or(memory.total).saturating_sub(RESERVE_BYTES).saturating_sub(weight_bytes);
    let what = if memory.free.is_some() { "free GPU memory" } else { "the GPU memory" };
    let reason = format!("{OWN_MEMORY_PERCENT} % of the {} of {what} that weights and a reserve leave", Bytes(remaining));
    (percent(remaining, OWN_MEMORY_PERCENT), reason)
}

/// Part of the RAM of the machine.
fn ram_budget(machine: &Machine, share: u64) -> (u64, String) {
    match machine.free_memory {
        Some(free) => {
            let shared = if share == SHARED_PERCENT { ", shared with the GPU" } else { "" };
            (percent(free.0, share), format!("{share} % of the {free} of free RAM{shared}"))
        }
        None => (UNKNOWN_BYTES, "the system does not report free memory".to_owned()),
    }
}

fn percent(bytes: u64, share: u64) -> u64 {
    bytes / 100 * share
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine() -> Machine {
        Machine {
            has_own_memory: true,
            device: Some(DeviceMemory { total: 8 * GIB, free: Some(7 * GIB) }),
            free_memory: Some(Bytes(32 * GIB)),
            free_disk: Some(Bytes(100 * GIB)),
            library: Bytes(10 * GIB),
        }
    }

    /// Equal except for rounding to whole percents.
    #[track_caller]
    fn assert_caps(budgets: &Budgets, expected: [f64; 3]) {
        let caps = budgets.caps;
        for (got, gib) in [caps.vram, caps.ram, caps.disk].into_iter().zip(expected) {
            assert!((got.0 as f64 / GIB as f64 - gib).abs() < 1e-6, "{got} is not {gib} GiB");
        }
    }

    #[test]
    fn budgets_of_a_gpu_leave_the_reserve_and_the_weights() {
        let budgets = defaults(&machine(), 4 * GIB);
        assert_caps(&budgets, [0.9 * 2.75, 16.0, 60.0]);
        assert!(budgets.reasons[0].contains("90 % of the 2.75 GiB"), "{:?}", budgets.reasons);
        assert!(budgets.reasons[2].contains("10.0 GiB of saved documents"), "{:?}", budgets.reasons);
    }

    #[test]
    fn gpu_without_a_free_figure_counts_as_free() {
        let device = Some(DeviceMemory { total: 8 * GIB, free: None });
        assert_caps(&defaults(&Machine { device, ..machine() }, 4 * GIB), [0.9 * 3.75, 16.0, 60.0]);
    }

    #[test]
    fn budgets_of_a_gpu_with_shared_memory_divide_it() {
        let shared = Machine { has_own_memory: false, library: Bytes(0), ..machine() };
        assert_caps(&defaults(&shared, 4 * GIB), [8.0, 8.0, 50.0]);
        // An unknown GPU counts as sharing memory: rather too little than too much.
        assert_caps(&defaults(&Machine { device: None, ..machine() }, 4 * GIB), [8.0, 8.0, 60.0]);
    }

    #[test]
    fn budgets_without_figures_or_free_memory_are_the_minimum() {
        assert_caps(&defaults(&Machine::default(), GIB), [1.0, 1.0, 1.0]);
        let full = Machine { free_memory: Some(Bytes(0)), free_disk: Some(Bytes(0)), library: Bytes(0), ..machine() };
        assert_caps(&defaults(&full, 100 * GIB), [1.0 / 16.0, 1.0 / 16.0, 0.0]);
    }

    #[test]
    fn meminfo_of_linux_is_parsed() {
        let text = "MemTotal:       16384 kB\nMemFree:          1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(parse_meminfo(text), Some(Memory { total: Bytes(16 << 20), available: Bytes(8 << 20) }));
        for bad in ["", "MemTotal: 1 kB", "MemTotal: x kB\nMemAvailable: 1 kB", "MemTotal: 5\nMemAvailable: 1 kB"] {
            assert_eq!(parse_meminfo(bad), None, "{bad}");
        }
    }

    #[test]
    fn free_disk_of_a_missing_folder_is_that_of_its_nearest_parent() {
        let dir = tempfile::tempdir().unwrap();
        let here = free_disk(dir.path());
        assert_eq!(free_disk(&dir.path().join("not/yet/there")).is_some(), here.is_some());
        assert!(!dir.path().join("not").exists());
    }
}
