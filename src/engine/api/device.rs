//! Device facts: memory, disk and measured link bandwidth of this machine.

use crate::kv::budget::Machine;

/// Facts of the device and the machine, with no model loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// adapter name
    pub name: String,
    /// true if it runs on the CPU
    pub is_software: bool,
    /// true if it uses the kernels for software devices
    pub software_kernels: bool,
    /// maximum size of a binding, bytes
    pub max_binding_bytes: u64,
    /// memory and disk
    pub machine: Machine,
}

impl DeviceFacts {
    /// Free bytes of the memory for weights. None if unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        match self.machine.has_own_memory {
            true => self.machine.device.map(|memory| memory.free.unwrap_or(memory.total)),
            false => self.machine.free_memory.map(|bytes| bytes.0),
        }
    }

    /// Name of the memory for weights: VRAM, or memory if the device shares it with the machine.
    pub fn memory_name(&self) -> &'static str {
        if self.machine.has_own_memory { "VRAM" } else { "memory" }
    }
}

/// Peak rates of all links, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkBandwidth {
    /// RAM to VRAM
    pub ram_to_vram: f64,
    /// VRAM to RAM
    pub vram_to_ram: f64,
    /// disk to RAM; None if nothing can be saved, or the disk failed
    pub disk_to_ram: Option<f64>,
    /// RAM to disk
    pub ram_to_disk: Option<f64>,
}
