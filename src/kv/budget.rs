//! How much KV each tier may hold where the user did not say: from what the machine has free.
//!
//! ```text
//! device memory │ MemAvailable │ free disk, library ─► Machine ─► defaults ─► caps of the tiers, and why
//! ```
//! 1. Memory is counted once: a device without memory of its own shares the machine's with the RAM tier.
//! 2. What the library holds counts as room, since a new document may take the place of an old one.
//! 3. No cap is so small that nothing could move.
//!
//! Units: bytes. Limits: what is free is a look at one moment; whoever allocates must still bear to be refused.

use std::path::Path;

use crate::base::{Bytes, Tiers};
use crate::gpu::{DeviceMemory, Gpu};
use crate::kv::store::{StoreRoot, free_bytes};

/// Left to the driver, the window and other programs, of a device with memory of its own.
const HEAD_ROOM_BYTES: u64 = 256 << 20;
/// Of what is then left, the part that may be used, percent.
const OWN_MEMORY_PERCENT: u64 = 90;
/// Part of the machine's memory that the RAM tier may use, where the device has its own, percent.
const RAM_PERCENT: u64 = 50;
/// Part of the machine's memory that each of both tiers may use, where they share it, percent.
const SHARED_PERCENT: u64 = 25;
/// Part of the free disk, percent.
const DISK_PERCENT: u64 = 50;
/// Where the system does not say what is free.
const UNKNOWN_BYTES: u64 = 1 << 30;
/// The least that a memory tier gets.
const LEAST_BYTES: u64 = 64 << 20;

/// What the machine has, as far as it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// the device's memory is apart from the machine's
    pub has_own_memory: bool,
    /// of the device
    pub device: Option<DeviceMemory>,
    /// of the machine, free for programs
    pub free_memory: Option<Bytes>,
    /// on the library's file system
    pub free_disk: Option<Bytes>,
    /// what the library holds
    pub library: Bytes,
}

/// The machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// all of it
    pub total: Bytes,
    /// free for programs, caches that can be dropped included
    pub available: Bytes,
}

/// Caps, and a sentence for each on where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgets {
    /// caps on KV bytes
    pub caps: Tiers<Bytes>,
    /// vram, ram, disk
    pub reasons: [String; 3],
}

impl Machine {
    /// What this machine has now. Nothing is made: a library that is not there holds nothing.
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

/// Memory of the machine that programs may have now; none where the system does not say.
pub fn free_memory() -> Option<Bytes> {
    Some(memory()?.available)
}

/// The machine's memory; none where the system does not say.
pub fn memory() -> Option<Memory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Bytes that may still be written where `path` is or will be.
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

/// The caps for a model of which `weight_bytes` are still to be put on the device.
pub fn defaults(machine: &Machine, weight_bytes: u64) -> Budgets {
    let own = machine.device.filter(|_| machine.has_own_memory);
    let (vram, vram_reason) = match own {
        Some(memory) => own_memory(memory, weight_bytes),
        None => of_machine(machine, SHARED_PERCENT),
    };
    let ram_percent = if own.is_some() { RAM_PERCENT } else { SHARED_PERCENT };
    let (ram, ram_reason) = of_machine(machine, ram_percent);
    let (disk, disk_reason) = match machine.free_disk {
        Some(free) => {
            let room = percent(free.0, DISK_PERCENT);
            let held = machine.library;
            let held_too = if held.0 > 0 { format!(", and {held} that the library holds") } else { String::new() };
            (room.saturating_add(held.0), format!("{DISK_PERCENT} % of the {free} that are free on the disk{held_too}"))
        }
        None => (UNKNOWN_BYTES, "the system does not say what is free on the disk".to_owned()),
    };
    let caps = Tiers { vram: Bytes(vram.max(LEAST_BYTES)), ram: Bytes(ram.max(LEAST_BYTES)), disk: Bytes(disk) };
    Budgets { caps, reasons: [vram_reason, ram_reason, disk_reason] }
}

/// Part of a device's own memory.
fn own_memory(memory: DeviceMemory, weight_bytes: u64) -> (u64, String) {
    let left = memory.free.unwrap_or(memory.total).saturating_sub(HEAD_ROOM_BYTES).saturating_sub(weight_bytes);
    let what = if memory.free.is_some() { "free on the device" } else { "the device's memory" };
    let reason = format!("{OWN_MEMORY_PERCENT} % of the {} that weights and others leave of what is {what}", Bytes(left));
    (percent(left, OWN_MEMORY_PERCENT), reason)
}

/// Part of the machine's memory.
fn of_machine(machine: &Machine, share: u64) -> (u64, String) {
    match machine.free_memory {
        Some(free) => {
            let shared = if share == SHARED_PERCENT { ", which the device shares" } else { "" };
            (percent(free.0, share), format!("{share} % of the {free} that are free in the machine's memory{shared}"))
        }
        None => (UNKNOWN_BYTES, "the system does not say what memory is free".to_owned()),
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

    /// Equal but for rounding to whole percents.
    #[track_caller]
    fn assert_caps(budgets: &Budgets, expected: [f64; 3]) {
        let caps = budgets.caps;
        for (got, gib) in [caps.vram, caps.ram, caps.disk].into_iter().zip(expected) {
            assert!((got.0 as f64 / GIB as f64 - gib).abs() < 1e-6, "{got} is not {gib} GiB");
        }
    }

    #[test]
    fn budgets_of_a_card_leave_head_room_and_weights() {
        let budgets = defaults(&machine(), 4 * GIB);
        assert_caps(&budgets, [0.9 * 2.75, 16.0, 60.0]);
        assert!(budgets.reasons[0].contains("90 % of the 2.75 GiB"), "{:?}", budgets.reasons);
        assert!(budgets.reasons[2].contains("10.0 GiB that the library holds"), "{:?}", budgets.reasons);
    }

    #[test]
    fn budgets_of_a_card_that_does_not_say_what_is_free_take_all_of_it_as_free() {
        let device = Some(DeviceMemory { total: 8 * GIB, free: None });
        assert_caps(&defaults(&Machine { device, ..machine() }, 4 * GIB), [0.9 * 3.75, 16.0, 60.0]);
    }

    #[test]
    fn budgets_of_a_device_that_shares_memory_divide_it() {
        let shared = Machine { has_own_memory: false, library: Bytes(0), ..machine() };
        assert_caps(&defaults(&shared, 4 * GIB), [8.0, 8.0, 50.0]);
        // A card that cannot be asked is taken for one that shares: too little rather than too much.
        assert_caps(&defaults(&Machine { device: None, ..machine() }, 4 * GIB), [8.0, 8.0, 60.0]);
    }

    #[test]
    fn budgets_where_nothing_is_known_or_free_still_let_something_move() {
        assert_caps(&defaults(&Machine::default(), GIB), [1.0, 1.0, 1.0]);
        let full = Machine { free_memory: Some(Bytes(0)), free_disk: Some(Bytes(0)), library: Bytes(0), ..machine() };
        assert_caps(&defaults(&full, 100 * GIB), [1.0 / 16.0, 1.0 / 16.0, 0.0]);
    }

    #[test]
    fn meminfo_is_read_as_linux_writes_it() {
        let text = "MemTotal:       16384 kB\nMemFree:          1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(parse_meminfo(text), Some(Memory { total: Bytes(16 << 20), available: Bytes(8 << 20) }));
        for bad in ["", "MemTotal: 1 kB", "MemTotal: x kB\nMemAvailable: 1 kB", "MemTotal: 5\nMemAvailable: 1 kB"] {
            assert_eq!(parse_meminfo(bad), None, "{bad}");
        }
    }

    #[test]
    fn free_disk_of_a_folder_to_come_is_that_of_its_nearest_parent() {
        let dir = tempfile::tempdir().unwrap();
        let here = free_disk(dir.path());
        assert_eq!(free_disk(&dir.path().join("not/yet/there")).is_some(), here.is_some());
        assert!(!dir.path().join("not").exists());
    }
}
