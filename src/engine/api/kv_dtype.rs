//! Element types of the KV cache.

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    /// half precision
    #[default]
    F16,
    /// 8 bits, keys grouped by channel and values by token
    Q8,
    /// 4 bits, grouped the same way
    Q4,
    /// single precision, for comparing engines
    F32,
}
