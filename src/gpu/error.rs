//! Errors of the GPU layer, each with a message that names the remedy.

use crate::base::Bytes;

/// Errors of the GPU layer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// no adapter found
    #[error(
        "no GPU and no software Vulkan driver was found; install your card's Vulkan driver, or the package \
         mesa-vulkan-drivers to run on the CPU"
    )]
    NoAdapter,
    /// no adapter matches `--gpu`
    #[error("no adapter matches '{wanted}'; this machine has: {found}")]
    NoSuchAdapter {
        /// adapter requested
        wanted: String,
        /// adapters available
        found: String,
    },
    /// the driver failed to open the device
    #[error("the device {adapter} could not be opened ({reason}); update its driver or choose another with --gpu")]
    Open {
        /// adapter name
        adapter: String,
        /// message of the driver
        reason: String,
    },
    /// the device was lost (driver reset, unplugged, suspended)
    #[error("the GPU was lost ({0})")]
    Lost(String),
    /// an allocation failed
    #[error("the GPU could not allocate {size} for {what}; free VRAM, use a smaller --context, or a smaller model")]
    OutOfMemory {
        /// purpose
        what: String,
        /// size
        size: Bytes,
    },
    /// a bug: the driver or validator rejected a shader, binding or submit
    #[error("the GPU rejected {what}: {reason}")]
    Rejected {
        /// operation
        what: String,
        /// message of the driver or validator
        reason: String,
    },
    /// a shader source that fails to preprocess
    #[error("shader {shader}: {reason}")]
    Shader {
        /// path below shaders/
        shader: String,
        /// reason
        reason: String,
    },
}
