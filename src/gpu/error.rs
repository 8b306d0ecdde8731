//! What can go wrong on the device, each as a sentence for a person.

use crate::base::Bytes;

/// Errors of the device layer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// there is no adapter at all
    #[error(
        "no GPU and no software Vulkan driver was found; install your card's Vulkan driver, or the package \
         mesa-vulkan-drivers to run on the CPU"
    )]
    NoAdapter,
    /// `--gpu` names nothing that is here
    #[error("no adapter matches '{wanted}'; this machine has: {found}")]
    NoSuchAdapter {
        /// what was asked for
        wanted: String,
        /// what there is
        found: String,
    },
    /// the driver refused to open the device
    #[error("the device {adapter} could not be opened ({reason}); update its driver or choose another with --gpu")]
    Open {
        /// adapter name
        adapter: String,
        /// the driver's words
        reason: String,
    },
    /// the device is gone (driver reset, unplugged, suspended)
    #[error("the GPU was lost ({0})")]
    Lost(String),
    /// an allocation failed
    #[error("the GPU could not allocate {size} for {what}; free VRAM, use a smaller --context, or a smaller model")]
    OutOfMemory {
        /// what it was for
        what: String,
        /// how much
        size: Bytes,
    },
    /// a mistake of ours: shader, binding or submit rejected
    #[error("the GPU rejected {what}: {reason}")]
    Rejected {
        /// which operation
        what: String,
        /// the driver's or the validator's words
        reason: String,
    },
    /// a shader source that does not preprocess
    #[error("shader {shader}: {reason}")]
    Shader {
        /// path below shaders/
        shader: String,
        /// what is wrong
        reason: String,
    },
}
