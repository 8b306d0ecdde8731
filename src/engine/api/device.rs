//! Device facts: memory, disk and measured link bandwidth of this machine.

use crate::kv::budget::Machine;

/// The device and the machine, as the next model finds them.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// adapter name
    pub name: String,
    /// runs on the CPU
    pub is_software: bool,
    /// largest binding, bytes
    pub max_binding_bytes: u64,
    /// memory and disk, with no model loaded
    pub machine: Machine,
}

impl DeviceFacts {
    /// What is free of the memory that weights lie in, bytes; none where nobody says.
    pub fn free_bytes(&self) -> Option<u64> {
        match self.machine.has_own_memory {
            true => self.machine.device.map(|memory| memory.free.unwrap_or(memory.total)),
            false => self.machine.free_memory.map(|bytes| bytes.0),
        }
    }

    /// What the memory is called that weights lie in: the device's own, or what it shares with the machine.
    pub fn memory_name(&self) -> &'static str {
        if self.machine.has_own_memory { "VRAM" } else { "memory" }
    }
}

/// Peaks of all links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkBandwidth {
    /// to the device
    pub ram_to_vram: f64,
    /// from the device
    pub vram_to_ram: f64,
    /// from the disk; none where nothing can be saved, or the disk failed
    pub disk_to_ram: Option<f64>,
    /// to the disk
    pub ram_to_disk: Option<f64>,
}
